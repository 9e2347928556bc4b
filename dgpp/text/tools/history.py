"""Tool calls in the history of a conversation (spec/api.md §5.2)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dgpp.text.message_error import MessageError
from dgpp.text.unicode_check import surrogate_path

_CUSTOM_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class ToolCall:
    """A call that the assistant made: templates walk `arguments` as a mapping."""

    name: str
    arguments: Mapping[str, Any]
    id: str | None = None

    def for_template(self) -> dict[str, Any]:
        """The mapping that chat templates read."""
        call = {"type": "function", "function": {"name": self.name, "arguments": dict(self.arguments)}}
        return call if self.id is None else {"id": self.id, **call}


def parse_tool_calls(value: Any, at: str) -> tuple[ToolCall, ...]:
    """The calls of an assistant message; none for null.

    Arguments are a JSON object, as a string or as it is; an empty string and null mean no arguments. A custom call is
    a function call with the one argument `input`. Raises MessageError naming the field.
    """
    if value is None:
        return ()
    if not isinstance(value, list):
        raise MessageError(at, f"{at} must be an array")
    return tuple(_parse_call(call, f"{at}[{index}]") for index, call in enumerate(value))


def _parse_call(value: Any, at: str) -> ToolCall:
    if not isinstance(value, dict):
        raise MessageError(at, f"{at} must be an object")
    id = value.get("id")
    if id is not None and not isinstance(id, str):
        raise MessageError(f"{at}.id", f"{at}.id must be a string")
    kind = value.get("type", "function")
    if kind not in ("function", "custom"):
        raise MessageError(f"{at}.type", f"{at}.type must be function or custom")
    body = value.get(kind)
    if not isinstance(body, dict):
        raise MessageError(f"{at}.{kind}", f"{at}.{kind} must be an object")
    name = body.get("name")
    if kind == "custom":
        if not id:
            raise MessageError(f"{at}.id", f"{at}.id must be a non-empty string")
        if not isinstance(name, str) or not _CUSTOM_NAME.fullmatch(name):
            raise MessageError(f"{at}.custom.name", f"{at}.custom.name must be 1 to 64 of A-Z a-z 0-9 _ -")
        if not isinstance(body.get("input"), str):
            raise MessageError(f"{at}.custom.input", f"{at}.custom.input must be a string")
        return ToolCall(name, {"input": body["input"]}, id)
    if not isinstance(name, str):
        raise MessageError(f"{at}.function.name", f"{at}.function.name must be a string")
    return ToolCall(name, _arguments(body.get("arguments"), f"{at}.function.arguments"), id)


def _arguments(value: Any, at: str) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value, parse_constant=_refuse_constant) if value.strip() else {}
        except (ValueError, RecursionError) as error:
            raise MessageError(at, f"{at} is not valid JSON: {error}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MessageError(at, f"{at} must be a JSON object, as a string or as it is")
    # The string may spell a surrogate as an escape that only this decoding turns into one.
    if surrogate_path(value, at) is not None:
        raise MessageError(at, f"{at} holds an unpaired surrogate, which is not Unicode text")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON value")
