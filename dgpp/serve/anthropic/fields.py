"""The fields of a Messages request as data, and what those mean that chat has in another shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dgpp.serve.errors import UNSUPPORTED_PARAMETER
from dgpp.serve.requests import decoding
from dgpp.serve.requests.chat import CHAT_FIELDS
from dgpp.serve.requests.fields import Field, Refused, Schema, Shaped, nullable
from dgpp.serve.translation import EXTENSIONS, array, mapping

SAME = ("model", "stream", "temperature", "top_p", "top_k", *EXTENSIONS)
"""Fields that chat has under the same name."""

EFFORTS = ("low", "medium", "high", "xhigh", "max")


def _stops(value: Any) -> list[Any] | None:
    return array(value, "stop_sequences") or None


def _user(value: Any) -> Any:
    return mapping(value, "metadata").get("user_id")


def _object(name: str) -> Any:
    return lambda value: mapping(value, name)


def _as_sent(value: Any) -> Any:
    return value


_BLOCKS: Schema = {"type": "array", "items": {"type": "object", "required": ["type"]}}
_CONTENT: Schema = {"anyOf": [{"type": "string"}, _BLOCKS]}
_MESSAGE: Schema = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {"role": {"enum": ["user", "assistant", "system"]}, "content": _CONTENT},
}
_TOOL: Schema = {
    "type": "object",
    "required": ["name", "input_schema"],
    "properties": {
        "type": nullable({"const": "custom"}),
        "name": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
        "description": nullable({"type": "string"}),
        "input_schema": {"type": "object"},
        "strict": nullable({"type": "boolean"}),
    },
}
_CHOICE: Schema = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {"enum": ["auto", "any", "tool", "none"]},
        "name": {"type": "string"},
        "disable_parallel_tool_use": nullable({"type": "boolean"}),
    },
}

SYSTEM = Shaped[Any]("system", "The system message, or its paragraphs.", nullable(_CONTENT), _as_sent, None)
MESSAGES = Shaped[Any](
    "messages",
    "The conversation; an answer goes on where a last message of the assistant ends.",
    {"type": "array", "minItems": 1, "items": _MESSAGE},
    _as_sent,
    None,
)
MAX_TOKENS = replace(decoding.MAX_TOKENS, doc="Most tokens of the answer, its thinking included. Required.")
STOP_SEQUENCES = Shaped[list[Any] | None](
    "stop_sequences",
    "Texts that end the answer.",
    nullable({"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": decoding.MAX_STOPS}),
    _stops,
    None,
)
TOOLS = Shaped[Any](
    "tools",
    "Tools that the model may use.",
    nullable({"type": "array", "items": _TOOL, "maxItems": 128}),
    _as_sent,
    None,
)
TOOL_CHOICE = Shaped[Any](
    "tool_choice", "Which tools may or must be used; auto where there are tools.", nullable(_CHOICE), _as_sent, None
)
THINKING = Shaped[dict[str, Any]](
    "thinking",
    "Whether to think, and with how many tokens at most; adaptive leaves it to the model.",
    nullable(
        {
            "type": "object",
            "required": ["type"],
            "properties": {
                "type": {"enum": ["enabled", "disabled", "adaptive"]},
                "budget_tokens": {"type": "integer", "minimum": 0},
                "display": nullable({"enum": ["summarized", "omitted"]}),
            },
        }
    ),
    _object("thinking"),
    {"type": "adaptive"},
)
OUTPUT_CONFIG = Shaped[dict[str, Any]](
    "output_config",
    "How much to think, where the model can be told, and the form of the text, which is enforced or refused.",
    nullable(
        {
            "type": "object",
            "properties": {
                "effort": nullable({"enum": list(EFFORTS)}),
                "format": nullable({"type": "object", "required": ["type", "schema"]}),
            },
        }
    ),
    _object("output_config"),
    {},
)
METADATA = Shaped[Any](
    "metadata",
    "Accepted, without effect.",
    nullable({"type": "object", "properties": {"user_id": nullable({"type": "string"})}}),
    _user,
    None,
)

REFUSED = tuple(
    Refused(name, "this server runs no tools.", UNSUPPORTED_PARAMETER) for name in ("mcp_servers", "container")
)

_CHAT: dict[str, Field] = {field.name: field for field in CHAT_FIELDS}
_PROMPT: tuple[Field, ...] = (MESSAGES, SYSTEM, TOOLS, TOOL_CHOICE, THINKING, OUTPUT_CONFIG)
COUNT_FIELDS: tuple[Field, ...] = (_CHAT["model"], *_PROMPT, _CHAT["chat_template_kwargs"])
"""The fields that make a prompt. `model` and `messages` are required."""
MESSAGE_FIELDS: tuple[Field, ...] = (
    *(MAX_TOKENS, *_PROMPT, STOP_SEQUENCES, METADATA),
    *(_CHAT[name] for name in SAME),
    *REFUSED,
)
"""Every field that is looked at. `model`, `max_tokens` and `messages` are required."""
