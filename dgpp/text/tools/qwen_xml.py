"""The tool calls of Qwen's templates, and the compact variant of them that MiMo and Flint use (spec/api.md §7.4).

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

`<tool_call>` and `</tool_call>` are control tokens where the tokenizer has them, the inner tags are text. A string is
written as it is, everything else as JSON. The compact variant has no line breaks, and none is taken from a value.

What looks like a closing tag ends a value only where a parameter or the end of the call follows it; an opening tag
begins a new call only where a declared tool's name follows. A tag may have one line break too few or too many beside
it. One JSON object in place of the parameters is accepted.
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
_BREAKS = ("", "\n", "\n\n")


@dataclass(frozen=True)
class QwenXml:
    """`control` maps the spellings of the tokenizer's control tokens to their ids."""

    control: Mapping[str, int] = field(default_factory=dict)
    compact: bool = False
    name: ClassVar[str] = "qwen_xml"
    opener: ClassVar[str] = OPEN
    lead: ClassVar[str] = ""

    @property
    def marks(self) -> Marks:
        return Marks((OPEN, CLOSE), self.control)

    def parser(self, tools: Sequence[Tool], *, streams: bool) -> BlockParser:
        """A parser of one answer's text."""
        marks = self.marks
        reader = _Reader(marks, tools, self.compact)
        return BlockParser(marks(OPEN), reader.block, marks, tools, streams=streams)

    def grammar(self, tools: Sequence[Tool], *, least: int, most: int | None, value: Value) -> str:
        """Lark text of one or more blocks; see `tagged`. The compact variant always enforces required keys."""
        marks = self.marks
        gap = "" if self.compact else "\n"
        tags = Tags(
            head=f"{marks(OPEN)}{gap}<function=",
            named=f">{gap}",
            key="<parameter=",
            is_text=f">{gap}",
            is_json=f">{gap}",
            closed=f"{gap}</parameter>{gap}",
            end=f"</function>{gap}{marks(CLOSE)}",
        )
        ends = _Reader(marks, tools, self.compact).value_ends
        grammar = TaggedGrammar(tags, marks, ends.texts, value)
        calls = grammar.calls(tools, required=self.compact)
        start = lark.repeated("call", lark.quoted(gap), least, most)
        return "\n".join([f"start: {start}", calls, *grammar.rules, ""])

    def render(self, calls: Sequence[Call]) -> str:
        """The text that the template writes for `calls`."""
        gap = "" if self.compact else "\n"
        return gap.join(self._render(call, gap) for call in calls)

    def _render(self, call: Call, gap: str) -> str:
        parameters = (
            f"<parameter={key}>{gap}{value if isinstance(value, str) else lark.dumps(value)}{gap}</parameter>{gap}"
            for key, value in arguments_of(call).items()
        )
        return f"{OPEN}{gap}<function={call.name}>{gap}{''.join(parameters)}</function>{gap}{CLOSE}"


class _Reader:
    """Reads blocks of one call each."""

    def __init__(self, marks: Marks, tools: Sequence[Tool], compact: bool) -> None:
        self._open, self._close = marks(OPEN), marks(CLOSE)
        self._compact = compact
        tails = [
            f"</parameter>{gap}{next}"
            for gap in _BREAKS
            for next in ("<parameter=", *(f"</function>{last}{self._close}" for last in _BREAKS))
        ]
        before = ("",) if compact else ("", "\n")
        self._nested = {f"{self._open}{gap}<function={tool.name}>" for gap in _BREAKS for tool in tools}
        self.value_ends = Ends([*(f"{gap}{tail}" for gap in before for tail in tails), *self._nested])
        self._name_end = Ends([">"])

    def block(self, cursor: Cursor, calls: CallWriter) -> Wait[None]:
        yield from cursor.literal(self._open)
        yield from cursor.skip("\n", 2)
        yield from cursor.literal("<function=")
        name, _ = yield from cursor.name(self._name_end)
        calls.open(name)
        yield from cursor.skip("\n", 2)
        if (yield from cursor.peek()) == "{":
            yield from calls.json_object(cursor)
            yield from cursor.skip("\n", 2)
            yield from cursor.literal("</function>")
            yield from self._end(cursor)
            calls.finish()
            return
        tag = yield from cursor.literal("<parameter=", "</function>")
        if tag == "</function>":
            yield from self._end(cursor)
        while tag == "<parameter=":
            tag = yield from self._parameter(cursor, calls)
        calls.close()

    def _parameter(self, cursor: Cursor, calls: CallWriter) -> Wait[str]:
        """Reads one parameter and what follows it; returns its last tag."""
        key, _ = yield from cursor.name(self._name_end)
        calls.key(key)
        if not self._compact:
            yield from cursor.skip("\n", 1)
        end = yield from calls.value(cursor, self.value_ends)
        if end in self._nested:
            raise Interrupted("another call begins inside it")
        calls.end_value()
        yield from cursor.literal(end)
        return "<parameter=" if end.endswith("<parameter=") else self._close

    def _end(self, cursor: Cursor) -> Wait[None]:
        yield from cursor.skip("\n", 2)
        yield from cursor.literal(self._close)
