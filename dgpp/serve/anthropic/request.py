"""POST /v1/messages as a chat request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dgpp.serve.anthropic import fields
from dgpp.serve.anthropic.history import chat_messages
from dgpp.serve.anthropic.thinking import chat_thinking, omits_thinking
from dgpp.serve.anthropic.tools import chat_tool_choice, chat_tools
from dgpp.serve.requests.body import JsonObject
from dgpp.serve.requests.thinking import Controls
from dgpp.serve.translation import Paths, chat_body, invalid, mapping

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
    """The chat body that asks the same of a template with these controls. `counting` asks for no answer, so the number
    of its tokens may be missing. Raises ApiError naming the field as it was sent."""
    paths = Paths(_PATHS)
    for refused in fields.REFUSED:
        refused.read(sent)
    if not counting and sent.get("max_tokens") is None:
        raise invalid("max_tokens", "is required")
    messages = chat_messages(sent.get("system"), sent.get("messages"), paths)
    begun = messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]
    thinking, output = fields.THINKING.read(sent), fields.OUTPUT_CONFIG.read(sent)
    body: dict[str, Any] = {
        **chat_thinking(thinking, output.get("effort"), controls),
        **{name: sent[name] for name in fields.SAME if name in sent},
        "max_tokens": None if counting else sent["max_tokens"],
        "user": fields.METADATA.read(sent),
        "stop": fields.STOP_SEQUENCES.read(sent),
        "messages": messages,
        "continue_final_message": begun or None,
        "tools": chat_tools(sent.get("tools"), paths) or None,
        **chat_tool_choice(sent.get("tool_choice"), paths),
        "response_format": _response_format(output.get("format")),
    }
    return Translated(chat_body(body, sent), paths, omits_thinking(thinking))


def _response_format(value: Any) -> dict[str, Any] | None:
    """`output_config.format` as chat's response_format."""
    if value is None:
        return None
    if mapping(value, "output_config.format").get("type") != "json_schema":
        raise invalid("output_config.format.type", "must be json_schema")
    schema = mapping(value.get("schema"), "output_config.format.schema")
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
