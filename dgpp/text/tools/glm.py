"""The tool calls of GLM's templates (spec/api.md §7.4, spec/models_glm.md §5).

    <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>...</tool_call>

The six markers are control tokens. A string is written as it is, everything else as JSON. `</arg_value>` ends a value
only where another argument or the end of the call follows it; `<tool_call>` begins a new call only where a declared
tool's name and a marker follow. One line break between two markers is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from dgpp.text.events import Call
from dgpp.text.tools import lark
from dgpp.text.tools.calls import CallWriter, arguments_of
from dgpp.text.tools.cursor import Cursor, Interrupted, Wait
from dgpp.text.tools.declared import Tool
from dgpp.text.tools.hold import Ends
from dgpp.text.tools.lark import Value
from dgpp.text.tools.marks import Marks
from dgpp.text.tools.parser import BlockParser
from dgpp.text.tools.tagged import TaggedGrammar, Tags

OPEN, CLOSE = "<tool_call>", "</tool_call>"
KEY, KEY_END, VALUE, VALUE_END = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"
_BREAKS = ("", "\n")


@dataclass(frozen=True)
class Glm:
    """`control` maps the spellings of the tokenizer's control tokens to their ids."""

    control: Mapping[str, int] = field(default_factory=dict)
    name: ClassVar[str] = "glm"
    opener: ClassVar[str] = OPEN
    lead: ClassVar[str] = ""

    @property
    def marks(self) -> Marks:
        return Marks((OPEN, CLOSE, KEY, KEY_END, VALUE, VALUE_END), self.control)

    def parser(self, tools: Sequence[Tool], *, streams: bool) -> BlockParser:
        """A parser of one answer's text."""
        marks = self.marks
        return BlockParser(marks(OPEN), _Reader(marks, tools).block, marks, tools, streams=streams)

    def grammar(self, tools: Sequence[Tool], *, least: int, most: int | None, value: Value) -> str:
        """Lark text of one or more blocks; see `tagged`."""
        marks = self.marks
        tags = Tags(
            head=marks(OPEN),
            named="",
            key=marks(KEY),
            is_text=f"{marks(KEY_END)}{marks(VALUE)}",
            is_json=f"{marks(KEY_END)}{marks(VALUE)}",
            closed=marks(VALUE_END),
            end=marks(CLOSE),
        )
        grammar = TaggedGrammar(tags, marks, _Reader(marks, tools).value_ends.texts, value)
        calls = grammar.calls(tools)
        return "\n".join([f"start: {lark.repeated('call', '', least, most)}", calls, *grammar.rules, ""])

    def render(self, calls: Sequence[Call]) -> str:
        """The text that the template writes for `calls`."""
        return "".join(map(_render, calls))


def _render(call: Call) -> str:
    arguments = (
        f"{KEY}{key}{KEY_END}{VALUE}{value if isinstance(value, str) else lark.dumps(value)}{VALUE_END}"
        for key, value in arguments_of(call).items()
    )
    return f"{OPEN}{call.name}{''.join(arguments)}{CLOSE}"


class _Reader:
    """Reads blocks of one call each."""

    def __init__(self, marks: Marks, tools: Sequence[Tool]) -> None:
        self._open, self._value = marks(OPEN), marks(VALUE)
        self._key = marks(KEY)
        next = [f"{gap}{tag}" for gap in _BREAKS for tag in (self._key, marks(CLOSE))]
        self._name_ends = Ends(next)
        self._key_end = Ends([marks(KEY_END)])
        self._nested = {f"{self._open}{tool.name}{tag}" for tool in tools for tag in next}
        self.value_ends = Ends([*(f"{marks(VALUE_END)}{tag}" for tag in next), *self._nested])

    def block(self, cursor: Cursor, calls: CallWriter) -> Wait[None]:
        yield from cursor.literal(self._open)
        yield from cursor.skip("\n", 1)
        name, end = yield from cursor.name(self._name_ends)
        calls.open(name)
        while end.endswith(self._key):
            key, _ = yield from cursor.name(self._key_end)
            calls.key(key)
            yield from cursor.skip("\n", 1)
            yield from cursor.literal(self._value)
            end = yield from calls.value(cursor, self.value_ends)
            if end in self._nested:
                raise Interrupted("another call begins inside it")
            calls.end_value()
            yield from cursor.literal(end)
        calls.close()
