"""Chat messages as a request spells them, to the few shapes that templates and the engine see (spec/api.md §5).

Accepted spellings are many, the result is one: content is a string, `developer` is `system`, the instruction messages
at the start are one message, tool arguments are mappings, and reasoning in the history has one name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from dgpp.text.content import parse_content
from dgpp.text.message_error import MessageError
from dgpp.text.tools.history import ToolCall, parse_tool_calls
from dgpp.text.unicode_check import surrogate_path

Role = Literal["system", "user", "assistant", "tool"]

_OWN_KEYS = frozenset({"role", "content", "refusal", "tool_calls", "tool_call_id", "name", "audio", "function_call"})
_REASONING_KEYS = ("reasoning_content", "reasoning")


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str | tuple[Mapping[str, Any], ...]  # mappings: a tool's native list of outputs or references
    reasoning: str | None = None  # assistant
    tool_calls: tuple[ToolCall, ...] = ()  # assistant
    tool_call_id: str | None = None  # tool
    name: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)  # keys that only a template may know

    def for_template(self) -> dict[str, Any]:
        """The mapping that chat templates read. Keys without a value are absent."""
        content = self.content if isinstance(self.content, str) else [dict(item) for item in self.content]
        message: dict[str, Any] = {**self.extra, "role": self.role, "content": content}
        if self.reasoning is not None:
            message["reasoning_content"] = self.reasoning
        if self.tool_calls:
            message["tool_calls"] = [call.for_template() for call in self.tool_calls]
        if self.tool_call_id is not None:
            message["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            message["name"] = self.name
        return message


def parse_messages(value: Any) -> list[Message]:
    """The messages of a request's `messages` value, with the leading system and developer messages merged into one.

    Raises MessageError naming the first field that is wrong.
    """
    if not isinstance(value, list) or not value:
        raise MessageError("messages", "messages must be a non-empty array")
    messages = [_parse_message(item, f"messages[{index}]") for index, item in enumerate(value)]
    return _merge_leading_system(messages)


def _parse_message(value: Any, at: str) -> Message:
    if not isinstance(value, dict):
        raise MessageError(at, f"{at} must be an object")
    if (where := surrogate_path(value, at)) is not None:
        raise MessageError(where, f"{where} holds an unpaired surrogate, which is not Unicode text")
    role = _role(value.get("role"), f"{at}.role")
    for key in ("audio", "function_call"):
        if value.get(key) is not None:
            raise MessageError(f"{at}.{key}", f"{at}.{key} is not supported", "unsupported_parameter")
    if "name" in value and not isinstance(value["name"], str):
        raise MessageError(f"{at}.name", f"{at}.name must be a string")

    parsed = parse_content(value.get("content"), role, f"{at}.content")
    content = parsed.content
    message = Message(role, "", name=value.get("name"), extra=_extra(value, role))
    if role == "assistant":
        message = replace(
            message,
            reasoning=_reasoning(value, parsed.thinking, at),
            tool_calls=parse_tool_calls(value.get("tool_calls"), f"{at}.tool_calls"),
        )
        refusal = value.get("refusal")
        if refusal is not None and not isinstance(refusal, str):
            raise MessageError(f"{at}.refusal", f"{at}.refusal must be a string")
        if content is None:
            if refusal is None and not message.tool_calls and message.reasoning is None:
                raise MessageError(f"{at}.content", f"{at}.content is required without tool_calls or refusal")
            content = refusal or ""
    elif content is None:
        raise MessageError(f"{at}.content", f"{at}.content must be a string or an array of parts")
    elif role == "tool":
        message = replace(message, tool_call_id=_tool_call_id(value, content, at))
    return replace(message, content=content)


def _role(value: Any, at: str) -> Role:
    match value:
        case "developer":
            return "system"
        case "system" | "user" | "assistant" | "tool":
            return value
    raise MessageError(at, f"{at} must be system, developer, user, assistant or tool")


def _extra(value: dict[str, Any], role: Role) -> dict[str, Any]:
    own = _OWN_KEYS.union(_REASONING_KEYS if role == "assistant" else ())
    return {key: item for key, item in value.items() if key not in own}


def _reasoning(value: dict[str, Any], thinking: str | None, at: str) -> str | None:
    """`reasoning_content`, else its other name `reasoning`, else the thinking parts of the content."""
    for key in _REASONING_KEYS:
        text = value.get(key)
        if isinstance(text, str):
            return text
        if text is not None:
            raise MessageError(f"{at}.{key}", f"{at}.{key} must be a string")
    return thinking


def _tool_call_id(value: dict[str, Any], content: str | tuple[Mapping[str, Any], ...], at: str) -> str | None:
    id = value.get("tool_call_id")
    if isinstance(id, str) or (id is None and not isinstance(content, str)):
        return id
    raise MessageError(f"{at}.tool_call_id", f"{at}.tool_call_id must be a string")


def _merge_leading_system(messages: list[Message]) -> list[Message]:
    """Templates know one system message, the first; clients send several instructions ahead of the conversation."""
    count = next((at for at, message in enumerate(messages) if message.role != "system"), len(messages))
    if count < 2:
        return messages
    merged = Message("system", "\n\n".join(str(message.content) for message in messages[:count]))
    return [merged, *messages[count:]]
