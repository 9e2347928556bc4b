"""Blocks that are no calls: visible content and an event, never silence (L8, §7.4)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpp.text.events import Call, CallClosed, LogprobDelta, Malformed, TextDelta
from dgpp.text.tools.dialect import Dialect

from .support import CONTROL, DIALECTS, DSML4, DSML41, GLM, HERMES, LOOKUP, QWEN, answer, events, malformed, tools

TOOLS = tools(**LOOKUP)
every = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
CALL = Call("lookup", '{"query": "x"}')

BROKEN = [
    (QWEN, "<tool_call>\n{oops}\n</tool_call>"),
    (QWEN, "<tool_call>\n<function=nobody>\n</function>\n</tool_call>"),
    (QWEN, "<tool_call>\n<function=lookup>\nquery\n</function>\n</tool_call>"),
    (QWEN, "<tool_call>\n<function=lookup>\n<parameter=query>\nx\n</parameter>\n</tool_call>"),
    (QWEN, "<tool_call>\n<function=lookup>\n</function> and more </tool_call>"),
    (QWEN, "<tool_call>\n\n\n<function=lookup>\n</function>\n</tool_call>"),
    (QWEN, "<tool_call>\n<function=run>\n<parameter=code>\nx\n</parameter>\n</function>\n</tool_call>"),
    (QWEN, "<tool_call>\n<function=run>\n</function>\n</tool_call>"),
    (
        QWEN,
        "<tool_call>\n<function=lookup>\n<parameter=a>\n1\n</parameter>\n<parameter=a>\n2\n</parameter>\n</function>\n"
        "</tool_call>",
    ),
    (QWEN, f"<tool_call>\n<function={'x' * 300}>\n</function>\n</tool_call>"),
    (QWEN, "<tool_call>\n<function=look\nup>\n</function>\n</tool_call>"),
    (HERMES, '<tool_call>\n{"name": "nobody", "arguments": {}}\n</tool_call>'),
    (HERMES, '<tool_call>\n{"name": "lookup", "arguments": {"direction": both}}\n</tool_call>'),
    (HERMES, '<tool_call>\n{"name": "lookup", "arguments": [1]}\n</tool_call>'),
    (HERMES, '<tool_call>\n{"name": "lookup", "arguments": "[1]"}\n</tool_call>'),
    (HERMES, '<tool_call>\n{"name": "lookup", "arguments": {}} trailing\n</tool_call>'),
    (HERMES, '<tool_call>\n{"arguments": {}}\n</tool_call>'),
    (HERMES, '<tool_call>\n{"name": "lookup", "name": "other"}\n</tool_call>'),
    (HERMES, '<tool_call>\n{"name": "run", "arguments": {"input": 1}}\n</tool_call>'),
    (HERMES, '<tool_call>\n{"name": "run", "arguments": {"input": "\\ud800"}}\n</tool_call>'),
    (HERMES, '<tool_call>\n{"name": "run", "arguments": {"n": 1' + "0" * 4400 + "}}\n</tool_call>"),
    (HERMES, '<tool_call>\n{"name": "lookup", "arguments": ' + '{"a":' * 300 + "1" + "}" * 301 + "\n</tool_call>"),
    (GLM, "<tool_call>nobody</tool_call>"),
    (GLM, "<tool_call></tool_call>"),
    (GLM, "<tool_call>lookup<arg_key>query</arg_key></tool_call>"),
    (GLM, "<tool_call>lookup<arg_value>x</arg_value></tool_call>"),
    (
        GLM,
        "<tool_call>lookup<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>a</arg_key><arg_value>2</arg_value>"
        "</tool_call>",
    ),
    (DSML4, '\n\n<｜DSML｜invoke name="lookup">\n</｜DSML｜invoke>'),
    (DSML4, "\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke lookup>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"),
    (DSML4, "\n\n<｜DSML｜tool_calls>\n</｜DSML｜tool_calls>"),
    (DSML4, '\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="lookup">\nx</｜DSML｜invoke>\n</｜DSML｜tool_calls>'),
    (
        DSML41,
        '\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name="lookup">\n<｜DSML｜ parameter name="k">x</｜DSML｜ parameter>\n'
        "</｜DSML｜ invoke>\n</｜DSML｜ calls>",
    ),
    (
        DSML41,
        '\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name="other">\n</｜DSML｜ invoke>\n<｜DSML｜ invoke name="nobody">\n'
        "</｜DSML｜ invoke>\n</｜DSML｜ calls>",
    ),
]


@pytest.mark.parametrize(("dialect", "block"), BROKEN)
def test_L8_a_malformed_block_is_content_and_said_to_be_one(dialect: Dialect, block: str) -> None:
    text = f"Look: {block} Done."
    found = answer(dialect, text, TOOLS, samples=2)
    assert (found.content, found.calls, found.finish_reason) == (text, (), "stop")
    assert malformed(dialect, text, TOOLS) >= 1


@every
def test_L8_a_call_behind_a_malformed_block_is_found(dialect: Dialect) -> None:
    broken = dialect.render([Call("nobody", '{"query": "x"}')])
    found = answer(dialect, f"{broken} {dialect.render([CALL])}", TOOLS)
    assert found.content.strip() == broken.strip()
    assert found.calls == (CALL,)
    assert malformed(dialect, broken, TOOLS) >= 1


@every
def test_api_7_4_the_end_of_the_stream_inside_a_block(dialect: Dialect) -> None:
    whole = dialect.render([CALL])
    for end in range(whole.index(dialect.opener) + len(dialect.opener), len(whole), 8):
        found = answer(dialect, whole[:end], TOOLS, reason="length", samples=1)
        assert (found.content, found.calls, found.finish_reason) == (whole[:end], (), "length")
        assert malformed(dialect, whole[:end], TOOLS) >= 1


@every
def test_A3_a_call_that_was_cut_while_it_streamed_stays_incomplete(dialect: Dialect) -> None:
    whole = dialect.render([CALL])
    cut = whole[: whole.index("x") + 1]
    found = answer(dialect, cut, TOOLS, streams=True, reason="length")
    assert found.calls == (Call("lookup", '{"query": "x', complete=False),)
    assert (found.content, found.finish_reason) == ("", "length")
    assert malformed(dialect, whole, TOOLS) == 0
    steps = events(dialect, cut, TOOLS, streams=True, reason="length")
    assert not [event for step in steps for event in step if isinstance(event, Malformed | CallClosed)]


@every
def test_api_7_4_a_nested_opener_aborts_the_outer_block(dialect: Dialect) -> None:
    whole = dialect.render([CALL])
    outer = whole[: whole.index("x") + 1]
    found = answer(dialect, outer + whole, TOOLS)
    assert found.content.rstrip() == outer
    assert found.calls == (CALL,)
    assert malformed(dialect, outer + whole, TOOLS) == 1


@every
def test_api_7_4_a_nested_opener_while_the_outer_call_streams(dialect: Dialect) -> None:
    whole = dialect.render([CALL])
    outer = whole[: whole.index("x") + 1]
    found = answer(dialect, outer + whole, TOOLS, streams=True)
    assert (found.calls[0].complete, found.calls[0].arguments[:12]) == (False, '{"query": "x')
    if dialect.name == "hermes_json":  # the opener is data of a JSON string, up to the quote that is out of place
        assert found.content.startswith('name": "lookup"')
    else:
        assert found.calls[1:] == (CALL,)


@every
def test_content_after_a_block_that_broke_while_it_streamed_is_shown(dialect: Dialect) -> None:
    whole = dialect.render([Call("lookup", '{"query": "x", "fresh": true}')])
    broken = whole.replace('name="fresh"', 'name="query"').replace("=fresh>", "=query>").replace(">fresh<", ">query<")
    if broken == whole:
        broken = whole.replace("true", "tru")
    found = answer(dialect, broken + "END", TOOLS, streams=True)
    [call] = found.calls
    assert (call.complete, call.arguments.startswith('{"query": "x"')) == (False, True)
    assert found.content.endswith("END")


def test_logprobs_of_a_malformed_block_are_kept() -> None:
    steps = events(QWEN, "<tool_call>ab", TOOLS, streams=False)
    found = [event for step in steps for event in step]
    tokens = [entry.token for event in found if isinstance(event, LogprobDelta) for entry in event.entries]
    assert tokens == ["<tool_call>", "a", "b"]
    assert "".join(event.text for event in found if isinstance(event, TextDelta)) == "<tool_call>ab"


FRAGMENTS = [
    *CONTROL,
    *(
        "\n",
        "\n\n",
        "<",
        ">",
        "</",
        '"',
        "{",
        "}",
        "x",
        "lookup",
        "other",
        "run",
        "query",
        "input",
        " ",
        ": ",
        ", ",
        "1",
    ),
    *(
        "<function=",
        "</function>",
        "<parameter=",
        "</parameter>",
        "lookup>",
        "query>",
        '{"name": ',
        '"arguments"',
        '"lookup"',
    ),
    *(
        "calls>",
        " calls>",
        "tool_calls>",
        'invoke name="',
        ' invoke name="lookup">',
        'parameter name="',
        '" string="true">',
    ),
]


@every
@settings(deadline=None, max_examples=25)
@given(st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=25).map("".join))
def test_garbage_is_neither_lost_nor_an_error(dialect: Dialect, text: str) -> None:
    found = answer(dialect, text, TOOLS, samples=1)
    assert found.finish_reason == ("tool_calls" if found.calls else "stop")
    if not found.calls:
        assert found.content == text
    streamed = answer(dialect, text, TOOLS, streams=True, samples=1)
    assert set(found.calls) <= set(streamed.calls)
