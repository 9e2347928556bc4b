"""Whatever a template writes for a call is read back as this call, however it is split."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dgpp.text.events import Call
from dgpp.text.tools.declared import Tool, parse_tools
from dgpp.text.tools.dialect import Dialect

from .support import CONTROL, DIALECTS, answer

PARTS = [
    *CONTROL,
    *(
        "</parameter>",
        "<parameter=",
        "</function>",
        "<function=",
        "\n",
        "<",
        "</",
        '"',
        "\\",
        "{",
        "10",
        "true",
        "é",
        "😀",
    ),
    *("parameter>", "invoke", " calls>", 'string="true">', "tool_calls>", " "),
]
texts = st.lists(st.sampled_from(PARTS) | st.text(max_size=3), max_size=6).map("".join)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "string": texts,
    "integer": st.integers(),
    "number": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "null": st.none(),
    "array": st.lists(anything, max_size=3),
    "object": st.dictionaries(texts, anything, max_size=3),
}
names = st.text("abcXYZ019_-", min_size=1, max_size=6)
keys = st.text("abcXYZ019_-. é", min_size=1, max_size=6)


@st.composite
def calls_of_tools(draw: st.DrawFn) -> tuple[tuple[Tool, ...], list[Call]]:
    """Tools with random typed properties, and calls to them with some of these."""
    declared: list[dict[str, Any]] = []
    calls: list[Call] = []
    for name in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
        if draw(st.booleans()):
            types = draw(st.dictionaries(keys, st.sampled_from(sorted(BY_TYPE)), max_size=4))
            schema = {"type": "object", "properties": {key: {"type": kind} for key, kind in types.items()}}
            declared.append({"type": "function", "function": {"name": name, "parameters": schema}})
            given = {key: draw(BY_TYPE[kind]) for key, kind in types.items() if draw(st.booleans())}
            calls.append(Call(name, json.dumps(given, ensure_ascii=False)))
        else:
            declared.append({"type": "custom", "custom": {"name": name}})
            calls.append(Call(name, draw(texts), "custom"))
    return parse_tools(declared), calls


END = re.compile(
    r"</parameter>\n*(<parameter=|</function>)|</arg_value>\n*(<arg_key>|</tool_call>)"
    r"|</｜DSML｜ ?parameter>\n*(<｜DSML｜ ?parameter|</｜DSML｜ ?invoke)"
)
"""The whole of what ends a value, which no parser can tell from the end."""


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@settings(deadline=None, max_examples=25)
@given(calls_of_tools(), st.booleans())
def test_api_7_4_calls_are_read_back(
    dialect: Dialect, made: tuple[tuple[Tool, ...], list[Call]], streams: bool
) -> None:
    declared, calls = made
    for call in calls if dialect.name != "hermes_json" else ():
        values = [call.arguments] if call.kind == "custom" else json.loads(call.arguments).values()
        assume(not any(isinstance(value, str) and END.search(value) for value in values))
        # Behind the name of a tool, an opener begins a call.
        assume(not any(f"{dialect.opener}{tool.name}" in call.arguments for tool in declared))
    found = answer(dialect, dialect.render(calls), declared, streams=streams, samples=1)
    assert (found.content, found.calls) == ("", tuple(calls))
