"""The input of a Responses request as chat messages.

An answer of this API is a list of items: thinking, texts, calls. Chat has one assistant message for all of them, so the
items between two that the assistant did not make become one message.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dgpp.serve.responses.tools import chat_name
from dgpp.serve.translation import Paths, array, invalid, mapping, text, unsupported

_ROLES = ("user", "assistant", "system", "developer")
_PART_TYPES = {"input_text": "text", "output_text": "text", "input_image": "image_url"}
"""Types of content parts, and chat's names for them."""


def chat_messages(instructions: str | None, given: Any, paths: Paths) -> list[dict[str, Any]]:
    """The chat messages of `instructions` and `input`. Raises ApiError."""
    history = _History(paths)
    if instructions is not None:
        history.add({"role": "system", "content": instructions}, "instructions")
        paths.add("messages[0].content", "instructions")
    if isinstance(given, str):
        history.add({"role": "user", "content": given}, "input")
        paths.add(f"messages[{len(history.messages) - 1}].content", "input")
        return history.messages
    if not isinstance(given, list) or not given:
        raise invalid("input", "must be a string or a non-empty array of items")
    for index, item in enumerate(given):
        at = f"input[{index}]"
        history.take(mapping(item, at), at)
    return history.messages


@dataclass
class _History:
    """The messages so far. The last one is open for more items of the assistant while `_open` is set."""

    paths: Paths

    def __post_init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._open: dict[str, Any] | None = None

    def add(self, message: dict[str, Any], at: str) -> str:
        """Adds a message that `at` stands for; returns its chat path."""
        path = f"messages[{len(self.messages)}]"
        self.messages.append(message)
        self.paths.add(path, at)
        self._open = None
        return path

    def take(self, item: dict[str, Any], at: str) -> None:
        """Adds an item."""
        kind = item.get("type", "message")
        read = self._readers().get(kind) if isinstance(kind, str) else None
        if read is None:
            raise unsupported(f"{at}.type", f"{kind!r} is no item that this server takes")
        read(item, at)

    def _readers(self) -> dict[str, Callable[[dict[str, Any], str], None]]:
        return {
            "message": self._message,
            "reasoning": self._reasoning,
            "function_call": self._function_call,
            "custom_tool_call": self._custom_call,
            "function_call_output": self._output,
            "custom_tool_call_output": self._output,
        }

    def _message(self, item: dict[str, Any], at: str) -> None:
        role, content = item.get("role"), item.get("content")
        if role not in _ROLES:
            raise invalid(f"{at}.role", f"must be one of {', '.join(_ROLES)}")
        if not isinstance(content, str | list):
            raise invalid(f"{at}.content", "must be a string or an array of parts")
        if role != "assistant":
            path = self.add({"role": role}, at)
            message = self.messages[-1]
        else:
            message, path = self._assistant(at)
        if isinstance(content, str):
            held = message.setdefault("content", [])
            self.paths.add(f"{path}.content[{len(held)}].text", f"{at}.content")
            held.append({"type": "text", "text": content})
        else:
            self._parts(content, message, path, f"{at}.content")

    def _parts(self, content: list[Any], message: dict[str, Any], path: str, at: str) -> None:
        """Adds content parts to a message, by chat's names; those of unknown types stay, and are refused there."""
        held = message.setdefault("content", [])
        for index, part in enumerate(content):
            here, where = f"{path}.content[{len(held)}]", f"{at}[{index}]"
            self.paths.add(here, where)
            kind = mapping(part, where).get("type")
            if kind == "input_file":
                if part.get("file_url") is not None:
                    raise unsupported(f"{where}.file_url", "is not supported: nothing is fetched; send file_data")
                self.paths.add(f"{here}.file", where)
                file = {key: part[key] for key in ("file_data", "file_id", "filename") if part.get(key) is not None}
                held.append({"type": "file", "file": file})
            else:
                held.append({**part, "type": _PART_TYPES.get(kind, kind) if isinstance(kind, str) else kind})

    def _reasoning(self, item: dict[str, Any], at: str) -> None:
        """The thinking itself, else its summary; an encrypted one cannot be read here and says nothing."""
        key = "content" if item.get("content") else "summary"
        parts = array(item.get(key) or [], f"{at}.{key}")
        where = [f"{at}.{key}[{index}]" for index in range(len(parts))]
        texts = [text(mapping(part, at).get("text"), f"{at}.text") for part, at in zip(parts, where, strict=True)]
        if any(texts):
            message, _ = self._assistant(at)
            message["reasoning_content"] = "\n\n".join(filter(None, (message.get("reasoning_content"), *texts)))

    def _function_call(self, item: dict[str, Any], at: str) -> None:
        inner = {"name": chat_name(item, at), "arguments": text(item.get("arguments"), f"{at}.arguments")}
        self._call({"type": "function", "function": inner}, item, at)

    def _custom_call(self, item: dict[str, Any], at: str) -> None:
        inner = {"name": chat_name(item, at), "input": item.get("input")}
        self._call({"type": "custom", "custom": inner}, item, at)

    def _call(self, call: dict[str, Any], item: dict[str, Any], at: str) -> None:
        message, path = self._assistant(at, call=True)
        calls = message.setdefault("tool_calls", [])
        path = f"{path}.tool_calls[{len(calls)}]"
        self.paths.add(path, at)
        self.paths.add(f"{path}.{call['type']}", at)
        self.paths.add(f"{path}.id", f"{at}.call_id")
        calls.append({"id": text(item.get("call_id"), f"{at}.call_id"), **call})

    def _output(self, item: dict[str, Any], at: str) -> None:
        output = item.get("output")
        path = self.add({"role": "tool", "tool_call_id": text(item.get("call_id"), f"{at}.call_id")}, at)
        self.paths.add(f"{path}.content", f"{at}.output")
        if isinstance(output, list):
            self._parts(output, self.messages[-1], path, f"{at}.output")
        else:
            self.messages[-1]["content"] = text(output, f"{at}.output")

    def _assistant(self, at: str, *, call: bool = False) -> tuple[dict[str, Any], str]:
        """The assistant's message that takes one more item, and its chat path.

        Results must follow the message with their calls, so one with calls takes everything; one with a text takes
        only calls.
        """
        full = self._open is None or not (call or "tool_calls" in self._open or "content" not in self._open)
        if full:
            message: dict[str, Any] = {"role": "assistant"}
            self.add(message, at)
            self._open = message
        assert self._open is not None
        return self._open, f"messages[{len(self.messages) - 1}]"
