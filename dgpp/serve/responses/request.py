"""POST /v1/responses as a chat request: the fields by chat's names, and what the answer repeats of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dgpp.serve.body import JsonObject
from dgpp.serve.responses.history import chat_messages
from dgpp.serve.responses.tools import chat_tool_choice, chat_tools
from dgpp.serve.translation import Paths, array, chat_body, extensions, invalid, mapping, text, unsupported

_SAME = (
    "model",
    "temperature",
    "top_p",
    "top_k",
    "parallel_tool_calls",
    "stream",
    "stream_options",
    "metadata",
    "user",
    "safety_identifier",
    "service_tier",
    "store",
    "top_logprobs",
)
"""Fields that chat has under the same name."""

_REFUSED = (
    "previous_response_id",
    "conversation",
    "prompt",
    "max_tool_calls",
    "context_management",
    "moderation",
    "background_options",
    "prompt_cache_retention",
    "prompt_cache_options",
)
"""Fields about answers that are kept, or tools that the server runs: there are none here."""

_LOGPROBS = "message.output_text.logprobs"
_INCLUDABLE = (_LOGPROBS, "reasoning.encrypted_content")
"""What may be included; thinking is always there, in plain text."""

_PATHS = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
    "response_format.json_schema": "text.format",
    "logprobs": "include",
}


@dataclass(frozen=True)
class Translated:
    """A Responses request as a chat body, the way back for its paths, and the request itself."""

    chat: JsonObject
    paths: Paths
    sent: JsonObject


def translate(sent: JsonObject) -> Translated:
    """The chat body that asks for the same. Raises ApiError naming the field as it was sent."""
    paths = Paths(_PATHS)
    for key in _REFUSED:
        if sent.get(key) is not None:
            raise unsupported(key)
    if sent.get("background") not in (None, False):
        raise unsupported("background", "is not supported: answers are not kept")
    if sent.get("truncation") not in (None, "disabled"):
        raise unsupported("truncation", 'must be "disabled"')
    if sent.get("prompt_cache_key") is not None:
        text(sent["prompt_cache_key"], "prompt_cache_key")
    logprobs = _included(sent.get("include"))
    fields = {
        **{key: sent.get(key) for key in _SAME},
        "max_tokens": sent.get("max_output_tokens"),
        "logprobs": logprobs or bool(sent.get("top_logprobs")) or None,
        "stop": sent.get("stop"),
        "messages": chat_messages(sent.get("instructions"), sent.get("input"), paths),
        "tools": chat_tools(sent.get("tools"), paths),
        "tool_choice": chat_tool_choice(sent.get("tool_choice"), paths),
        "response_format": _response_format(sent.get("text")),
        "reasoning_effort": _effort(sent.get("reasoning")),
        "thinking_budget": sent.get("thinking_budget"),
    }
    if not fields["logprobs"]:
        del fields["top_logprobs"]
    return Translated(chat_body({**fields, **extensions(sent)}, sent), paths, sent)


def _included(value: Any) -> bool:
    """Whether log-probabilities are asked for."""
    items = [] if value is None else array(value, "include")
    for index, item in enumerate(items):
        if item not in _INCLUDABLE:
            raise unsupported(f"include[{index}]", f"must be one of {', '.join(_INCLUDABLE)}")
    return _LOGPROBS in items


def _response_format(value: Any) -> dict[str, Any] | None:
    """`text.format` as chat's response_format."""
    if value is None:
        return None
    options: Mapping[str, Any] = mapping(value, "text")
    if options.get("verbosity") not in (None, "medium"):
        raise unsupported("text.verbosity", 'must be "medium"')
    format = options.get("format")
    if format is None:
        return None
    if mapping(format, "text.format").get("type") != "json_schema":
        return dict(format)
    return {"type": "json_schema", "json_schema": {key: item for key, item in format.items() if key != "type"}}


def _effort(value: Any) -> Any:
    """`reasoning.effort`; how thinking is summed up has no effect, as it is shown whole."""
    if value is None:
        return None
    reasoning = mapping(value, "reasoning")
    for key in ("summary", "generate_summary"):
        if reasoning.get(key) not in (None, "auto", "concise", "detailed"):
            raise invalid(f"reasoning.{key}", "must be auto, concise or detailed")
    return reasoning.get("effort")
