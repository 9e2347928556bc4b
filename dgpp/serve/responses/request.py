"""POST /v1/responses as a chat request."""

from __future__ import annotations

from dataclasses import dataclass

from dgpp.serve.requests.body import JsonObject
from dgpp.serve.responses import fields
from dgpp.serve.responses.history import chat_messages
from dgpp.serve.responses.tools import chat_tool_choice, chat_tools
from dgpp.serve.translation import Paths, chat_body

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
    for refused in fields.REFUSED:
        refused.read(sent)
    for checked in (fields.BACKGROUND, fields.TRUNCATION, fields.PROMPT_CACHE_KEY):
        checked.read(sent)
    body = {name: sent[name] for name in fields.SAME if name in sent}
    if body.get("top_logprobs") == 0:
        del body["top_logprobs"]
    if fields.INCLUDE.read(sent) or body.get("top_logprobs") is not None:
        body["logprobs"] = True
    body |= {
        "max_tokens": sent.get("max_output_tokens"),
        "messages": chat_messages(fields.INSTRUCTIONS.read(sent), sent.get("input"), paths),
        "tools": chat_tools(sent.get("tools"), paths),
        "tool_choice": chat_tool_choice(sent.get("tool_choice"), paths),
        "response_format": fields.TEXT.read(sent),
        "reasoning_effort": fields.REASONING.read(sent),
    }
    return Translated(chat_body(body, sent), paths, sent)
