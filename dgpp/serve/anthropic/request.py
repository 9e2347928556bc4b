"""POST /v1/messages as a chat request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dgpp.serve.anthropic.history import chat_messages
from dgpp.serve.anthropic.tools import chat_tool_choice, chat_tools
from dgpp.serve.body import JsonObject
from dgpp.serve.template_kwargs import Controls
from dgpp.serve.translation import Paths, array, chat_body, extensions, invalid, mapping, options, unsupported

_SAME = ("model", "temperature", "top_p", "top_k", "stream")
"""Fields that chat has under the same name."""

_REFUSED = ("mcp_servers", "container")
"""Fields about tools that the server would run."""

_PATHS = {
    "stop": "stop_sequences",
    "user": "metadata.user_id",
    "reasoning_effort": "output_config.effort",
    "thinking_budget": "thinking.budget_tokens",
    "continue_final_message": "messages",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "response_format": "output_config.format",
    "response_format.json_schema": "output_config.format",
}


@dataclass(frozen=True)
class Translated:
    """A Messages request as a chat body, and the way back for its paths."""

    chat: JsonObject
    paths: Paths
    omits_thinking: bool


def translate(sent: JsonObject, controls: Controls, *, counting: bool = False) -> Translated:
    """The chat body that asks the same of a template with these controls. `counting` asks for no answer, so the fields
    about it may be missing. Raises ApiError naming the field as it was sent."""
    paths = Paths(_PATHS)
    for key in _REFUSED:
        if sent.get(key):
            raise unsupported(key)
    if not counting and sent.get("max_tokens") is None:
        raise invalid("max_tokens", "is required")
    messages = chat_messages(sent.get("system"), sent.get("messages"), paths)
    begun = messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]
    output = options(sent.get("output_config"), "output_config")
    fields: dict[str, Any] = {
        **{key: sent.get(key) for key in _SAME},
        "max_tokens": None if counting else sent["max_tokens"],
        "user": options(sent.get("metadata"), "metadata").get("user_id"),
        "stop": array(sent.get("stop_sequences") or [], "stop_sequences") or None,
        "messages": messages,
        "continue_final_message": begun or None,
        "tools": chat_tools(sent.get("tools"), paths) or None,
        **chat_tool_choice(sent.get("tool_choice"), paths),
        "response_format": _response_format(output.get("format")),
        **extensions(sent),
    }
    thinking = options(sent.get("thinking"), "thinking") or {"type": "adaptive"}
    body = chat_body({**fields, **_thinking(thinking, output, controls, fields)}, sent)
    return Translated(body, paths, _omits(thinking))


def _omits(thinking: Mapping[str, Any]) -> bool:
    """Whether thoughts are left out of the answer; a summary of them is the whole of them here."""
    display = thinking.get("display")
    if display not in (None, "summarized", "omitted"):
        raise invalid("thinking.display", "must be summarized or omitted")
    return display == "omitted"


def _thinking(
    thinking: Mapping[str, Any], output: Mapping[str, Any], controls: Controls, fields: Mapping[str, Any]
) -> dict[str, Any]:
    """The chat fields about thinking.

    An effort is a hint in this API, so one that the model cannot be told is dropped. A model that always thinks is kept
    from it by a budget of nothing. Adaptive thinking is what the model does when it is told nothing.
    """
    possible = controls.mapping()
    effort = output.get("effort")
    if effort is not None and not (isinstance(effort, str) and effort in _EFFORTS):
        raise invalid("output_config.effort", f"must be one of {', '.join(_EFFORTS)}")
    found: dict[str, Any] = {"reasoning_effort": effort} if effort in possible else {}
    match thinking.get("type"):
        case "adaptive":
            return found
        case "disabled":
            return {"reasoning_effort": "none"} if "none" in possible else {"thinking_budget": 0}
        case "enabled":
            if thinking.get("budget_tokens") is None:
                raise invalid("thinking.budget_tokens", "is required")
            if controls.switches and not found and "chat_template_kwargs" not in fields:
                found["chat_template_kwargs"] = JsonObject(enable_thinking=True)
            return {**found, "thinking_budget": thinking["budget_tokens"]}
    raise invalid("thinking.type", "must be enabled, disabled or adaptive")


_EFFORTS = ("low", "medium", "high", "xhigh", "max")


def _response_format(value: Any) -> dict[str, Any] | None:
    """`output_config.format` as chat's response_format."""
    if value is None:
        return None
    if mapping(value, "output_config.format").get("type") != "json_schema":
        raise invalid("output_config.format.type", "must be json_schema")
    schema = mapping(value.get("schema"), "output_config.format.schema")
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
