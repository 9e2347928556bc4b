"""The tool calls of DeepSeek-V4 and V4.1 (spec/api.md §7.4, spec/models_deepseek_mimo_flint.md §2.12, §3.14).

After a blank line:

    <｜DSML｜tool_calls>
    <｜DSML｜invoke name="NAME">
    <｜DSML｜parameter name="KEY" string="true|false">VALUE</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜tool_calls>

V4.1 writes a space before the tags' names and `calls` for `tool_calls`. `｜DSML｜` is the one control token. Values
that say string="true" are written as they are, the others as JSON. A name may be qualified (`namespace::name`): the
call is one to `name`. `</｜DSML｜parameter>` ends a value only where another parameter or the end of the call follows
it. A tag may have one line break too few or too many behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from dgpp.text.events import Call
from dgpp.text.segments import Segment, joined
from dgpp.text.tools import lark
from dgpp.text.tools.calls import CallWriter, arguments_of
from dgpp.text.tools.cursor import Cursor, Interrupted, MalformedBlock, Wait
from dgpp.text.tools.declared import Tool
from dgpp.text.tools.hold import Ends
from dgpp.text.tools.lark import Value
from dgpp.text.tools.marks import Marks
from dgpp.text.tools.parser import BlockParser
from dgpp.text.tools.tagged import TaggedGrammar, Tags

TOKEN = "｜DSML｜"
_BREAKS = ("", "\n", "\n\n")


@dataclass(frozen=True)
class _Markup:
    """The tags of a block, with the control token spelled out or as its mark."""

    calls: str
    calls_end: str
    invoke: str  # up to the name
    invoke_end: str
    parameter: str  # up to the name
    parameter_end: str


@dataclass(frozen=True)
class Dsml:
    """`control` maps the spellings of the tokenizer's control tokens to their ids."""

    control: Mapping[str, int] = field(default_factory=dict)
    spaced: bool = False
    """Whether it is the form of V4.1."""
    opener: ClassVar[str] = TOKEN
    lead: ClassVar[str] = "\n\n<"

    @property
    def name(self) -> str:
        return "dsml_v41" if self.spaced else "dsml_v4"

    @property
    def marks(self) -> Marks:
        return Marks((TOKEN,), self.control)

    def parser(self, tools: Sequence[Tool], *, streams: bool) -> BlockParser:
        """A parser of one answer's text."""
        marks = self.marks
        reader = _Reader(self._markup(marks(TOKEN)))
        return BlockParser(f"<{marks(TOKEN)}", reader.block, marks, tools, streams=streams)

    def grammar(self, tools: Sequence[Tool], *, least: int, most: int | None, value: Value) -> str:
        """Lark text of one block with all calls, without the "<" before its opener; see `tagged`."""
        marks = self.marks
        markup = self._markup(marks(TOKEN))
        tags = Tags(
            head=markup.invoke,
            named='">\n',
            key=markup.parameter,
            is_text='" string="true">',
            is_json='" string="false">',
            closed=f"{markup.parameter_end}\n",
            end=f"{markup.invoke_end}\n",
        )
        grammar = TaggedGrammar(tags, marks, _Reader(markup).value_ends.texts, value)
        calls = grammar.calls(tools)
        first = lark.sequence(f"{markup.calls}\n".removeprefix("<"), marks)
        last = lark.sequence(markup.calls_end, marks)
        return "\n".join([f"start: {first} {lark.repeated('call', '', least, most)} {last}", calls, *grammar.rules, ""])

    def render(self, calls: Sequence[Call]) -> str:
        """The text that the published encoder writes for `calls`."""
        return joined(self.segments([(call.name, arguments_of(call)) for call in calls]))

    def segments(self, calls: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Segment]:
        """The same, for calls by name and arguments, as markup and the text that models and people wrote."""
        markup = self._markup(TOKEN)
        parts = [Segment(f"\n\n{markup.calls}\n", True)]
        for name, arguments in calls:
            parts += [Segment(markup.invoke, True), Segment(name), Segment('">\n', True)]
            for key, value in arguments.items():
                is_text = isinstance(value, str)
                parts += [
                    *(Segment(markup.parameter, True), Segment(key)),
                    Segment(f'" string="{"true" if is_text else "false"}">', True),
                    *(Segment(value if is_text else lark.dumps(value)), Segment(f"{markup.parameter_end}\n", True)),
                ]
            parts.append(Segment(f"{markup.invoke_end}\n", True))
        return [*parts, Segment(markup.calls_end, True)]

    def _markup(self, token: str) -> _Markup:
        tag = f"{token} " if self.spaced else token
        calls = "calls" if self.spaced else "tool_calls"
        return _Markup(
            calls=f"<{tag}{calls}>",
            calls_end=f"</{tag}{calls}>",
            invoke=f'<{tag}invoke name="',
            invoke_end=f"</{tag}invoke>",
            parameter=f'<{tag}parameter name="',
            parameter_end=f"</{tag}parameter>",
        )


class _Reader:
    """Reads blocks of any number of calls."""

    def __init__(self, markup: _Markup) -> None:
        self._markup = markup
        tails = [f"{gap}{tag}" for gap in _BREAKS for tag in (markup.parameter, markup.invoke_end)]
        self._nested = {f"{markup.calls}{gap}{markup.invoke}" for gap in _BREAKS}
        self.value_ends = Ends([*(f"{markup.parameter_end}{tail}" for tail in tails), *self._nested])
        self._name_end = Ends(['">'])
        self._flag_end = Ends(['" string="true">', '" string="false">', '">'])

    def block(self, cursor: Cursor, calls: CallWriter) -> Wait[None]:
        yield from cursor.literal(self._markup.calls)
        yield from cursor.skip("\n", 2)
        tag = yield from cursor.literal(self._markup.invoke)
        while tag == self._markup.invoke:
            yield from self._invoke(cursor, calls)
            yield from cursor.skip("\n", 2)
            tag = yield from cursor.literal(self._markup.invoke, self._markup.calls_end)

    def _invoke(self, cursor: Cursor, calls: CallWriter) -> Wait[None]:
        name, _ = yield from cursor.name(self._name_end)
        calls.open(name.rpartition("::")[2])
        yield from cursor.skip("\n", 2)
        tag = yield from cursor.literal(self._markup.parameter, self._markup.invoke_end)
        while tag.endswith(self._markup.parameter):
            key, flag = yield from cursor.name(self._flag_end)
            if "string" not in flag:
                raise MalformedBlock(f"the parameter {key!r} does not say whether it is a string")
            calls.key(key, text="true" in flag)
            tag = yield from calls.value(cursor, self.value_ends)
            if tag in self._nested:
                raise Interrupted("another call begins inside it")
            calls.end_value()
            yield from cursor.literal(tag)
        calls.close()
