"""The tool calls of Hermes-style templates: one JSON object in a block (spec/api.md §7.4).

    <tool_call>
    {"name": NAME, "arguments": {...}}
    </tool_call>

The markers are control tokens where the tokenizer has them. Within JSON strings they are data. Arguments that are
given before the name, or as a JSON string that holds the object, are understood; other keys are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dgpp.text.events import Call
from dgpp.text.tools import lark
from dgpp.text.tools.calls import CallWriter, arguments_of
from dgpp.text.tools.cursor import Cursor, MalformedBlock, Wait
from dgpp.text.tools.declared import GrammarFormat, Tool
from dgpp.text.tools.json_text import BLANKS, json_string, json_value
from dgpp.text.tools.lark import Value
from dgpp.text.tools.marks import Marks
from dgpp.text.tools.parser import BlockParser

OPEN, CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True)
class HermesJson:
    """`control` maps the spellings of the tokenizer's control tokens to their ids."""

    control: Mapping[str, int] = field(default_factory=dict)
    name: ClassVar[str] = "hermes_json"
    opener: ClassVar[str] = OPEN
    lead: ClassVar[str] = ""

    @property
    def marks(self) -> Marks:
        return Marks((OPEN, CLOSE), self.control)

    def parser(self, tools: Sequence[Tool], *, streams: bool) -> BlockParser:
        """A parser of one answer's text."""
        marks = self.marks
        return BlockParser(marks(OPEN), _Reader(marks).block, marks, tools, streams=streams)

    def grammar(self, tools: Sequence[Tool], *, least: int, most: int | None, value: Value) -> str:
        """Lark text of one or more blocks. The arguments follow their schema, closed unless it says otherwise, with
        the keys in the declared order."""
        marks = self.marks
        tail = lark.sequence(f"}}\n{marks(CLOSE)}", marks)
        names: list[str] = []
        rules: list[str] = []
        for at, tool in enumerate(tools):
            names.append(f"call_{at}")
            arguments = value(_closed(tool), tool.strict or tool.kind == "custom") or '%json {"type": "object"}'
            head = f'{marks(OPEN)}\n{{"name": {json.dumps(tool.name)}, "arguments": '
            rules.append(f"call_{at}: {lark.sequence(head, marks)} call_{at}_value {tail}")
            rules.append(f"call_{at}_value: {arguments}")
        start = lark.repeated("call", lark.quoted("\n"), least, most)
        return "\n".join([f"start: {start}", f"call: {' | '.join(names)}", *rules, ""])

    def render(self, calls: Sequence[Call]) -> str:
        """The text that the template writes for `calls`."""
        return "\n".join(
            f'{OPEN}\n{{"name": {lark.dumps(call.name)}, "arguments": {lark.dumps(arguments_of(call))}}}\n{CLOSE}'
            for call in calls
        )


class _Reader:
    """Reads blocks of one call each."""

    def __init__(self, marks: Marks) -> None:
        self._open, self._close = marks(OPEN), marks(CLOSE)

    def block(self, cursor: Cursor, calls: CallWriter) -> Wait[None]:
        yield from cursor.literal(self._open)
        yield from cursor.skip(BLANKS)
        early: list[str] | None = None
        given: set[str] = set()
        delimiter = yield from cursor.literal("{")
        while delimiter != "}":
            yield from cursor.skip(BLANKS)
            key = yield from _string(cursor)
            yield from cursor.skip(BLANKS)
            yield from cursor.literal(":")
            yield from cursor.skip(BLANKS)
            if key in given and key in ("name", "arguments"):
                raise MalformedBlock(f"{key} is given twice")
            given.add(key)
            if key == "name":
                calls.open((yield from _string(cursor)))
                if early is not None:
                    calls.whole("".join(early))
            elif key == "arguments" and "name" in given:
                yield from calls.json_object(cursor)
            elif key == "arguments":
                early = []
                yield from json_value(cursor, early.append)
            else:
                yield from json_value(cursor, lambda text: None)
            yield from cursor.skip(BLANKS)
            delimiter = yield from cursor.literal(",", "}")
        if "name" not in given:
            raise MalformedBlock("the call has no name")
        if "arguments" not in given:
            calls.whole("{}")
        yield from cursor.skip(BLANKS)
        yield from cursor.literal(self._close)
        calls.finish()


def _string(cursor: Cursor) -> Wait[str]:
    parts: list[str] = []
    yield from json_string(cursor, parts.append)
    text: str = json.loads("".join(parts))
    return text


def _closed(tool: Tool) -> Mapping[str, Any]:
    """The schema of a call's arguments, with no other keys than it declares unless it allows them."""
    if isinstance(tool.format, GrammarFormat):
        own = {"syntax": tool.format.syntax, "definition": tool.format.definition}
        return {**tool.schema, "properties": {"input": {"type": "string", "x-dgpp-grammar": own}}}
    if any(keyword in tool.schema for keyword in ("$ref", "anyOf", "oneOf", "allOf")):
        return tool.schema  # which keys these declare is not said here
    return {"type": "object", "properties": {}, "additionalProperties": False, **tool.schema}
