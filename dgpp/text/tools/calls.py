"""The events of the calls in a block, while it is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from dgpp.text.events import Call, CallArguments, CallClosed, CallEvent, CallOpened
from dgpp.text.tools.coerce import Typed, resolve, typed
from dgpp.text.tools.cursor import Cursor, MalformedBlock, Wait
from dgpp.text.tools.declared import Tool
from dgpp.text.tools.hold import Ends
from dgpp.text.tools.json_text import BLANKS, escaped, json_value, normalised
from dgpp.text.unicode_check import surrogate_path


class CallWriter:
    """Turns what a reader finds in a block into events. Values of string type are passed on as they come, others when
    they are complete, so that the arguments are the same however the text was cut.

    `index` is the place of the next call among the calls of the answer.
    """

    def __init__(self, tools: Mapping[str, Tool], emit: Callable[[CallEvent], None], index: int) -> None:
        self.index = index
        self._tools = tools
        self._emit = emit
        self._tool: Tool | None = None
        self._keys: set[str] = set()
        self._value: list[str] = []
        self._typed = Typed(None)

    @property
    def is_open(self) -> bool:
        """Whether a call was opened and not closed."""
        return self._tool is not None

    @property
    def is_custom(self) -> bool:
        """Whether the open call is one of a custom tool."""
        return self._tool is not None and self._tool.kind == "custom"

    def open(self, name: str) -> None:
        """A call of this tool begins. Raises MalformedBlock when there is none of this name."""
        tool = self._tools.get(name)
        if tool is None:
            raise MalformedBlock(f"no tool is named {name!r}")
        self._tool = tool
        self._keys = set()
        self._emit(CallOpened(self.index, name, tool.kind))

    def key(self, key: str, *, text: bool | None = None) -> None:
        """The value of this argument follows. `text` says whether it is a string where the format itself tells.

        Raises MalformedBlock for a second value of one argument, and for arguments that a custom tool has not.
        """
        assert self._tool is not None
        if key in self._keys:
            raise MalformedBlock(f"the argument {key!r} is given twice")
        if self.is_custom and key != "input":
            raise MalformedBlock(f"the custom tool {self._tool.name!r} takes no {key!r}")
        root = self._tool.schema
        schema = resolve(root, root) or {}
        self._typed = typed(schema.get("properties", {}).get(key, schema.get("additionalProperties")), root)
        if text is not None and text != self._typed.is_text:
            self._typed = Typed(frozenset({"string"}) if text else None)
        if not self.is_custom:
            quote = '"' if self._typed.is_text else ""
            self.raw(f"{', ' if self._keys else '{'}{json.dumps(key, ensure_ascii=False)}: {quote}")
        self._keys.add(key)
        self._value = []

    def value(self, cursor: Cursor, ends: Ends) -> Wait[str]:
        """Reads the value up to one of `ends`, which stays unread and is returned.

        Where the value may be a JSON array or object and is, an end within one of its strings is data.
        """
        if self.is_custom or self._typed.is_text:
            return (yield from cursor.until(ends, self._text))
        cursor.save()
        try:
            yield from cursor.skip(BLANKS)
            yield from cursor.upcoming(("[", "{"))
            yield from json_value(cursor, lambda text: None)
            yield from cursor.skip(BLANKS)
            end = yield from cursor.upcoming(ends.texts)
            self._value.append(cursor.unsave())
        except MalformedBlock:
            cursor.restore()
            end = yield from cursor.until(ends, self._value.append)
        return end

    def end_value(self) -> None:
        """The value was one of the open call: it is complete."""
        if not self.is_custom:
            self.raw('"' if self._typed.is_text else self._typed.json("".join(self._value)))

    def json_object(self, cursor: Cursor) -> Wait[None]:
        """Reads all arguments as one JSON value, and passes on an object as it comes. Raises MalformedBlock."""
        if (yield from cursor.peek()) == "{" and not self.is_custom:
            yield from json_value(cursor, self.raw)
            return
        parts: list[str] = []
        yield from json_value(cursor, parts.append)
        self.whole("".join(parts))

    def whole(self, arguments: str) -> None:
        """All arguments at once: JSON text in our spacing, of an object, of null, or of a string that holds an object.

        Raises MalformedBlock for any other value, and for what is no custom tool's input.
        """
        try:
            if arguments.startswith('"'):
                arguments = (normalised(json.loads(arguments)) or ("", ""))[0]
            if arguments == "null":
                arguments = "{}"
            if not arguments.startswith("{"):
                raise MalformedBlock("the arguments are not an object")
            self.raw(_custom_input(json.loads(arguments)) if self.is_custom else arguments)
        except ValueError as error:  # an integer that is too long for Python
            raise MalformedBlock(str(error)) from error

    def raw(self, text: str) -> None:
        """More of the arguments as the client sees them."""
        if text:
            self._emit(CallArguments(self.index, text))

    def close(self) -> None:
        """The call is complete. Raises MalformedBlock when a custom tool got no input."""
        assert self._tool is not None
        if self.is_custom and not self._keys:
            raise MalformedBlock(f"the custom tool {self._tool.name!r} got no input")
        if not self.is_custom:
            self.raw("}" if self._keys else "{}")
        self.finish()

    def finish(self) -> None:
        """The call, whose arguments were written as a whole, is complete."""
        self._emit(CallClosed(self.index))
        self.index += 1
        self._tool = None

    def _text(self, text: str) -> None:
        self.raw(text if self.is_custom else escaped(text))


def arguments_of(call: Call) -> Mapping[str, Any]:
    """The arguments of a call by name."""
    arguments: Mapping[str, Any] = json.loads(call.arguments) if call.kind == "function" else {"input": call.arguments}
    return arguments


def _custom_input(arguments: Mapping[str, Any]) -> str:
    match arguments:
        case {"input": str(text), **rest} if not rest and surrogate_path(text, "") is None:
            return text
    raise MalformedBlock("a custom tool takes a text `input` and nothing else")
