"""Spellings of calls that templates do not write and models do (spec/api.md §7.4)."""

from __future__ import annotations

import pytest

from dgpp.text.events import Call
from dgpp.text.tools.dialect import Dialect

from .support import COMPACT, DSML4, DSML41, GLM, HERMES, LOOKUP, QWEN, answer, tools

TOOLS = tools(**LOOKUP)
CALL = Call("lookup", '{"query": "x", "max_results": 1}')
DSML_CALL = DSML4.render([CALL])

READ = [
    (
        QWEN,
        "<tool_call><function=lookup><parameter=query>x</parameter><parameter=max_results>1</parameter></function>"
        "</tool_call>",
    ),
    (
        QWEN,
        "<tool_call>\n\n<function=lookup>\n\n<parameter=query>\nx\n</parameter>\n\n<parameter=max_results>\n1\n"
        "</parameter>\n\n</function>\n\n</tool_call>",
    ),
    (QWEN, '<tool_call>\n<function=lookup>\n{"query": "x","max_results":1}\n</function>\n</tool_call>'),
    (COMPACT, '<tool_call><function=lookup>{"query":"x", "max_results":1}</function></tool_call>'),
    (
        COMPACT,
        "<tool_call>\n<function=lookup>\n<parameter=query>x</parameter>\n<parameter=max_results>\n1\n</parameter>\n"
        "</function>\n</tool_call>",
    ),
    (
        GLM,
        "<tool_call>lookup\n<arg_key>query</arg_key>\n<arg_value>x</arg_value>\n<arg_key>max_results</arg_key>\n"
        "<arg_value>1</arg_value>\n</tool_call>",
    ),
    (HERMES, '<tool_call>{"arguments":{"query":"x","max_results":1},"name":"lookup"}</tool_call>'),
    (
        HERMES,
        '<tool_call>\n{"name": "lookup", "arguments": "{\\"query\\": \\"x\\", \\"max_results\\": 1}"}\n</tool_call>',
    ),
    (
        HERMES,
        '<tool_call> {"id": [1], "name": "lookup", "arguments": {"query": "x",\n"max_results": 1}, "type": "f"}\n'
        "</tool_call>",
    ),
    (DSML4, DSML_CALL.replace(">\n", ">\n\n")),
    (DSML4, DSML_CALL.replace(">\n", ">")),
    (DSML41, DSML41.render([CALL]).replace('"lookup"', '"files::lookup"')),
]


@pytest.mark.parametrize(("dialect", "text"), READ)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_api_7_4_other_spellings_of_a_call_are_read(dialect: Dialect, text: str, streams: bool) -> None:
    found = answer(dialect, text, TOOLS, streams=streams)
    assert (found.calls, found.content) == ((CALL,), "")


@pytest.mark.parametrize("tail", [', "arguments": null', ', "arguments": {}', "", ', "arguments": "{}"'])
def test_api_7_4_a_hermes_call_without_arguments(tail: str) -> None:
    found = answer(HERMES, f'<tool_call>\n{{"name": "other"{tail}}}\n</tool_call>', TOOLS)
    assert found.calls == (Call("other", "{}"),)


def test_api_7_4_one_line_break_on_each_side_of_a_value_is_markup() -> None:
    for value in ("\n", "\nx\n", "x\n\n", ""):
        text = f"<tool_call>\n<function=lookup>\n<parameter=query>\n{value}\n</parameter>\n</function>\n</tool_call>"
        [call] = answer(QWEN, text, TOOLS).calls
        assert call.arguments == '{"query": "' + value.replace("\n", "\\n") + '"}'
        compact = f"<tool_call><function=lookup><parameter=query>{value}</parameter></function></tool_call>"
        assert answer(COMPACT, compact, TOOLS).calls == (call,)
