"""The conversation of a Messages request as chat messages.

A user's message may hold the results of tools, which chat has messages of their own for. Neighbours of one role are one
message, as this API has it.
"""

from __future__ import annotations

import base64
from typing import Any

from dgpp.serve.translation import Paths, array, invalid, mapping, text, unsupported

_BETWEEN = {"type": "text", "text": "\n\n"}
"""Stands between two texts of a message: they are paragraphs, which chat's parts are not."""

_ERROR = "Error: "
"""Begins the result of a tool that failed; chat has no field for that."""


def chat_messages(system: Any, messages: Any, paths: Paths) -> list[dict[str, Any]]:
    """The chat messages of `system` and `messages`. Raises ApiError."""
    history = _History(paths)
    if isinstance(system, str):
        history.add({"role": "system", "content": system}, "system")
    elif system is not None:
        for index, block in enumerate(array(system, "system")):
            at = f"system[{index}]"
            if mapping(block, at).get("type") != "text":
                raise invalid(f"{at}.type", "must be text")
            history.add({"role": "system", "content": text(block.get("text"), f"{at}.text")}, at)
    if not isinstance(messages, list) or not messages:
        raise invalid("messages", "must be a non-empty array")
    for index, message in enumerate(messages):
        at = f"messages[{index}]"
        history.take(mapping(message, at), at)
    return history.messages


class _History:
    """The messages so far."""

    def __init__(self, paths: Paths) -> None:
        self.messages: list[dict[str, Any]] = []
        self._paths = paths

    def add(self, message: dict[str, Any], at: str) -> str:
        """Adds a message that `at` stands for; returns its chat path."""
        path = f"messages[{len(self.messages)}]"
        self.messages.append(message)
        self._paths.add(path, at)
        return path

    def take(self, message: dict[str, Any], at: str) -> None:
        """Adds what a message says."""
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant", "system"):
            raise invalid(f"{at}.role", "must be user, assistant or system")
        if isinstance(content, str):
            self._part(role, {"type": "text", "text": content}, at, f"{at}.content", "text")
            return
        if not isinstance(content, list):
            raise invalid(f"{at}.content", "must be a string or an array of blocks")
        if not content:
            self._open(role, at)
        for index, block in enumerate(content):
            self._block(role, mapping(block, f"{at}.content[{index}]"), at, f"{at}.content[{index}]")

    def _block(self, role: str, block: dict[str, Any], at: str, here: str) -> None:
        match role, block.get("type"):
            case _, "text":
                self._part(role, {"type": "text", "text": text(block.get("text"), f"{here}.text")}, at, here)
            case "assistant", "thinking":
                thought = text(block.get("thinking"), f"{here}.thinking")
                self._part(role, {"type": "thinking", "thinking": thought}, at, here)
            case "assistant", "redacted_thinking":
                self._open(role, at)
            case "assistant", "tool_use":
                self._call(block, at, here)
            case "user", "tool_result":
                self._result(block, here)
            case "user", "document":
                self._document(block, at, here)
            case _, "image":
                self._part(role, {"type": "image_url"}, at, here)
            case _, kind:
                raise unsupported(f"{here}.type", f"{kind!r} is no block that this server takes here")

    def _open(self, role: str, at: str) -> tuple[dict[str, Any], str]:
        """The message of this role that goes on, and its chat path."""
        if not self.messages or self.messages[-1]["role"] != role or isinstance(self.messages[-1]["content"], str):
            self.add({"role": role, "content": []}, at)
        return self.messages[-1], f"messages[{len(self.messages) - 1}]"

    def _part(self, role: str, part: dict[str, Any], at: str, here: str, key: str = "") -> None:
        """Adds a part that `here` stands for; with `key`, it stands for this field of the part."""
        message, path = self._open(role, at)
        parts = message["content"]
        if part["type"] == "text" and parts and parts[-1]["type"] == "text":
            parts.append(_BETWEEN)
        where = f"{path}.content[{len(parts)}]"
        self._paths.add(f"{where}.{key}" if key else where, here)
        parts.append(part)

    def _call(self, block: dict[str, Any], at: str, here: str) -> None:
        message, path = self._open("assistant", at)
        calls = message.setdefault("tool_calls", [])
        path = f"{path}.tool_calls[{len(calls)}]"
        self._paths.add(path, here)
        self._paths.add(f"{path}.function", here)
        self._paths.add(f"{path}.function.arguments", f"{here}.input")
        function = {"name": block.get("name"), "arguments": mapping(block.get("input"), f"{here}.input")}
        calls.append({"id": text(block.get("id"), f"{here}.id"), "type": "function", "function": function})

    def _result(self, block: dict[str, Any], here: str) -> None:
        content = block.get("content")
        id = text(block.get("tool_use_id"), f"{here}.tool_use_id")
        failed = block.get("is_error")
        if failed is not None and not isinstance(failed, bool):
            raise invalid(f"{here}.is_error", "must be true or false")
        parts: list[dict[str, Any]] = [{"type": "text", "text": _ERROR}] if failed else []
        path = self.add({"role": "tool", "tool_call_id": id, "content": parts}, here)
        if content is None or isinstance(content, str):
            parts.append({"type": "text", "text": content or ""})
            return
        for index, inner in enumerate(array(content, f"{here}.content")):
            where = f"{here}.content[{index}]"
            if index:
                parts.append(_BETWEEN)
            self._paths.add(f"{path}.content[{len(parts)}]", where)
            if mapping(inner, where).get("type") == "text":
                parts.append({"type": "text", "text": text(inner.get("text"), f"{where}.text")})
            elif inner.get("type") == "image":
                parts.append({"type": "image_url"})
            else:
                raise unsupported(f"{where}.type", f"{inner.get('type')!r} is no block that this server takes here")

    def _document(self, block: dict[str, Any], at: str, here: str) -> None:
        """A document becomes a file part, or its texts."""
        source = mapping(block.get("source"), f"{here}.source")
        title = block.get("title")
        name = text(title, f"{here}.title") if title else None
        match source.get("type"):
            case "base64":
                file = {"file_data": text(source.get("data"), f"{here}.source.data"), "filename": name}
            case "text":
                data = text(source.get("data"), f"{here}.source.data")
                file = {"file_data": base64.b64encode(data.encode()).decode(), "filename": _text_name(name)}
            case "file":
                file = {"file_id": source.get("file_id"), "filename": name}
            case "content" if isinstance(source.get("content"), str):
                return self._part(
                    "user", {"type": "text", "text": source["content"]}, at, f"{here}.source.content", "text"
                )
            case "content":
                where = f"{here}.source.content"
                for index, inner in enumerate(array(source.get("content"), where)):
                    if mapping(inner, f"{where}[{index}]").get("type") not in ("text", "image"):
                        raise invalid(f"{where}[{index}].type", "must be text")
                    self._block("user", inner, at, f"{where}[{index}]")
                return None
            case kind:
                raise unsupported(f"{here}.source.type", f"{kind!r} is not supported: nothing is fetched; send base64")
        message, path = self._open("user", at)
        where = f"{path}.content[{len(message['content'])}].file"
        self._paths.add(where, f"{here}.source")
        self._paths.add(f"{where}.file_data", f"{here}.source.data")
        self._paths.add(f"{where}.filename", f"{here}.title")
        self._part("user", {"type": "file", "file": file}, at, here)
        return None


def _text_name(title: str | None) -> str:
    """A file name that says that the document is text."""
    return title if title is not None and title.endswith(".txt") else f"{title or 'document'}.txt"
