"""The fields of a Responses request as data, and what those mean that chat has in another shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dgpp.serve.errors import UNSUPPORTED_PARAMETER
from dgpp.serve.requests import decoding
from dgpp.serve.requests.chat import CHAT_FIELDS
from dgpp.serve.requests.fields import Field, Refused, Schema, Shaped, Text, nullable
from dgpp.serve.translation import EXTENSIONS, array, invalid, mapping, options, unsupported

SAME = (
    *("model", "stream", "stream_options", "metadata", "user", "safety_identifier", "service_tier", "store"),
    *("temperature", "top_p", "top_k", "top_logprobs", "parallel_tool_calls", "stop", "thinking_budget"),
    *EXTENSIONS,
)
"""Fields that chat has under the same name."""

_LOGPROBS = "message.output_text.logprobs"
_INCLUDABLE = (_LOGPROBS, "reasoning.encrypted_content")
_SUMMARIES = ("auto", "concise", "detailed")


def _included(value: Any) -> bool:
    items = array(value, "include")
    for index, item in enumerate(items):
        if item not in _INCLUDABLE:
            raise unsupported(f"include[{index}]", f"must be one of {', '.join(_INCLUDABLE)}")
    return _LOGPROBS in items


def _response_format(value: Any) -> dict[str, Any] | None:
    """`text.format` as chat's response_format."""
    text = mapping(value, "text")
    if text.get("verbosity") not in (None, "medium"):
        raise unsupported("text.verbosity", 'must be "medium"')
    form = options(text.get("format"), "text.format")
    if form.get("type") != "json_schema":
        return form or None
    return {"type": "json_schema", "json_schema": {key: item for key, item in form.items() if key != "type"}}


def _effort(value: Any) -> Any:
    reasoning = mapping(value, "reasoning")
    for key in ("summary", "generate_summary"):
        if reasoning.get(key) not in (None, *_SUMMARIES):
            raise invalid(f"reasoning.{key}", f"must be one of {', '.join(_SUMMARIES)}")
    return reasoning.get("effort")


def _background(value: Any) -> None:
    if value is not False:
        raise unsupported("background", "is not supported: answers are not kept")


def _truncation(value: Any) -> None:
    if value != "disabled":
        raise unsupported("truncation", 'must be "disabled"')


def _as_sent(value: Any) -> Any:
    return value


_OBJECT: Schema = {"type": "object"}
_TYPED: Schema = {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}}
_TOOL: Schema = {
    "type": "object",
    "required": ["type", "name"],
    "properties": {
        "type": {"enum": ["function", "custom", "namespace"]},
        "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
        "description": nullable({"type": "string"}),
        "parameters": nullable(_OBJECT),
        "strict": nullable({"type": "boolean"}),
        "format": _TYPED,
        "tools": {"type": "array", "items": _OBJECT},
    },
}

INSTRUCTIONS = Text("instructions", "The first system message.")
INPUT = Shaped[Any](
    "input",
    "A message of the user, or the items of the conversation: messages, reasoning, calls and their outputs.",
    {"anyOf": [{"type": "string"}, {"type": "array", "minItems": 1, "items": _OBJECT}]},
    _as_sent,
    None,
)
TOOLS = Shaped[Any](
    "tools",
    "Functions and custom tools that the model may call.",
    nullable({"type": "array", "items": _TOOL, "maxItems": 128}),
    _as_sent,
    None,
)
TOOL_CHOICE = Shaped[Any](
    "tool_choice",
    "Which tools may or must be called; auto where there are tools.",
    nullable({"anyOf": [{"enum": ["none", "auto", "required"]}, _TYPED]}),
    _as_sent,
    None,
)
MAX_OUTPUT_TOKENS = replace(decoding.MAX_TOKENS, name="max_output_tokens")
TEXT = Shaped[dict[str, Any] | None](
    "text",
    "The form of the text, which is enforced or refused.",
    nullable(
        {"type": "object", "properties": {"format": nullable(_TYPED), "verbosity": nullable({"const": "medium"})}}
    ),
    _response_format,
    None,
)
REASONING = Shaped[Any](
    "reasoning",
    "How much to think. A summary has no effect: thinking is shown whole.",
    nullable({"type": "object", "properties": {"effort": nullable({"type": "string"})}}),
    _effort,
    None,
)
INCLUDE = Shaped[bool](
    "include",
    "Log-probabilities of the text; encrypted thinking has no effect.",
    nullable({"type": "array", "items": {"enum": list(_INCLUDABLE)}}),
    _included,
    False,
)
BACKGROUND = Shaped[None]("background", "Only false.", nullable({"const": False}), _background, None)
TRUNCATION = Shaped[None]("truncation", "Only disabled.", nullable({"const": "disabled"}), _truncation, None)
PROMPT_CACHE_KEY = Text("prompt_cache_key", "Accepted, without effect.")

_NOTHING_KEPT = "answers are not kept; send the whole conversation."
_NO_HOSTED_TOOLS = "this server runs no tools."
REFUSED = (
    *(
        Refused(name, _NOTHING_KEPT, UNSUPPORTED_PARAMETER)
        for name in ("previous_response_id", "conversation", "prompt")
    ),
    Refused("background_options", _NOTHING_KEPT, UNSUPPORTED_PARAMETER),
    Refused("max_tool_calls", _NO_HOSTED_TOOLS, UNSUPPORTED_PARAMETER),
    *(
        Refused(name, "it is no part of this server; leave it out.", UNSUPPORTED_PARAMETER)
        for name in ("context_management", "moderation", "prompt_cache_retention", "prompt_cache_options")
    ),
)

_CHAT: dict[str, Field] = {field.name: field for field in CHAT_FIELDS}
RESPONSE_FIELDS: tuple[Field, ...] = (
    *(INPUT, INSTRUCTIONS, TOOLS, TOOL_CHOICE, MAX_OUTPUT_TOKENS, TEXT, REASONING, INCLUDE),
    *(BACKGROUND, TRUNCATION, PROMPT_CACHE_KEY),
    *(_CHAT[name] for name in SAME),
    *REFUSED,
)
"""Every field that is looked at. `model` and `input` are required."""
