"""Answers with tool calls in every format: the groups L and §7.4 on the reading side."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dgpp.text.events import Call
from dgpp.text.pipeline import Pipeline
from dgpp.text.tools.declared import parse_tools
from dgpp.text.tools.dialect import Dialect
from tests.text.splits import check_every_split

from .support import (
    DIALECTS,
    DSML4,
    DSML41,
    LOOKUP,
    MARKED,
    QWEN,
    answer,
    tools,
    vocabulary,
)

TOOLS = tools(**LOOKUP)
every = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
streamed = pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])


def arguments(**values: Any) -> str:
    return json.dumps(values, ensure_ascii=False)


TWO = [Call("lookup", arguments(query="Paris, é", max_results=10, exclude=[1, "é"], cursor=None)), Call("other", "{}")]


@every
@streamed
def test_api_7_4_a_rendered_call_is_read_back(dialect: Dialect, streams: bool) -> None:
    found = answer(dialect, dialect.render(TWO), TOOLS, streams=streams)
    assert (found.content, found.calls, found.finish_reason) == ("", tuple(TWO), "tool_calls")


@every
@streamed
def test_api_7_1_a_custom_call_has_the_raw_input(dialect: Dialect, streams: bool) -> None:
    wanted = Call("run", 'print("é")\n{"a": 1}\n', "custom")
    found = answer(dialect, dialect.render([TWO[1], wanted]), TOOLS, streams=streams)
    assert found.calls == (TWO[1], wanted)


@every
@streamed
def test_text_around_calls_is_content_and_the_line_breaks_between_are_not(dialect: Dialect, streams: bool) -> None:
    text = f"I look.\n\n{dialect.render(TWO)}\nDone <b."
    found = answer(dialect, text, TOOLS, streams=streams)
    assert (found.content, found.calls) == ("I look.Done <b.", tuple(TWO))


@every
@streamed
def test_text_without_calls_passes_as_it_is(dialect: Dialect, streams: bool) -> None:
    text = "a < b <tool <|DSML| </tool </function> \n\n< \n"
    found = answer(dialect, text, TOOLS, streams=streams)
    assert (found.content, found.calls, found.finish_reason) == (text, (), "stop")


# L1, L17: the declared schema decides what a bare text is.

BARE = {
    "qwen": lambda key, text: (
        f"<tool_call>\n<function=lookup>\n<parameter={key}>\n{text}\n</parameter>\n</function>\n</tool_call>"
    ),
    "compact": lambda key, text: (
        f"<tool_call><function=lookup><parameter={key}>{text}</parameter></function></tool_call>"
    ),
    "glm": lambda key, text: f"<tool_call>lookup<arg_key>{key}</arg_key><arg_value>{text}</arg_value></tool_call>",
}


@pytest.mark.parametrize("name", BARE)
@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("query", "10", '"10"'),
        ("query", "true", '"true"'),
        ("query", '"quoted"', '"\\"quoted\\""'),
        ("query", "[]", '"[]"'),
        ("max_results", "10", "10"),
        ("max_results", "1e400", "1e400"),
        ("max_results", "12345678901234567890.5", "12345678901234567890.5"),
        ("max_results", "ten", '"ten"'),
        ("exclude", "[]", "[]"),
        ("exclude", '[1,{"a":"\\u00e9"}]', '[1, {"a": "é"}]'),
        ("fresh", "true", "true"),
        ("where", '{"a":null}', '{"a": null}'),
        ("cursor", "null", "null"),
        ("cursor", "3", "3"),
        ("unknown", "10", "10"),
        ("unknown", "ten", '"ten"'),
        ("unknown", "True", '"True"'),
    ],
)
def test_L1_a_value_has_the_type_that_is_declared(name: str, key: str, text: str, value: str) -> None:
    for streams in (False, True):
        found = answer(MARKED[name], BARE[name](key, text), TOOLS, streams=streams)
        assert found.calls == (Call("lookup", f'{{"{key}": {value}}}'),)


@pytest.mark.parametrize("name", BARE)
@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("fresh", "True", "true"),
        ("fresh", " False", "false"),
        ("cursor", "None", "null"),
        ("exclude", "['a', True, None, (1, 2)]", '["a", true, null, [1, 2]]'),
        ("where", "{'a': 'it\\'s', 'b': False}", '{"a": "it\'s", "b": false}'),
        ("exclude", "{'a': 1}", "\"{'a': 1}\""),
        ("where", "{1: 2}", '"{1: 2}"'),
        ("where", "{'a': __import__('os')}", "\"{'a': __import__('os')}\""),
        ("query", "True", '"True"'),
        ("max_results", "None", '"None"'),
    ],
)
def test_L17_python_spelling_of_typed_values(name: str, key: str, text: str, value: str) -> None:
    for streams in (False, True):
        found = answer(MARKED[name], BARE[name](key, text), TOOLS, streams=streams)
        assert found.calls == (Call("lookup", f'{{"{key}": {value}}}'),)


@pytest.mark.parametrize("dialect", [DSML4, DSML41])
@pytest.mark.parametrize(
    ("key", "flag", "text", "value"),
    [
        ("query", "true", "10", '"10"'),
        ("max_results", "true", "10", '"10"'),
        ("max_results", "false", "10", "10"),
        ("query", "false", "10", "10"),
        ("fresh", "false", "True", "true"),
        ("unknown", "false", "ten", '"ten"'),
    ],
)
def test_L1_dsml_says_itself_what_is_a_string(dialect: Dialect, key: str, flag: str, text: str, value: str) -> None:
    wire = dialect.render([Call("lookup", '{"K": 0}')])
    wire = wire.replace('"K" string="false">0<', f'"{key}" string="{flag}">{text}<')
    for streams in (False, True):
        assert answer(dialect, wire, TOOLS, streams=streams).calls == (Call("lookup", f'{{"{key}": {value}}}'),)


def test_L1_a_schema_behind_a_reference_and_one_for_all_other_keys() -> None:
    schema = {
        "$ref": "#/$defs/arguments",
        "$defs": {"arguments": {"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}},
    }
    declared = parse_tools([{"name": "lookup", "parameters": schema}])
    wire = QWEN.render([Call("lookup", arguments(a="1", b="2"))])
    assert answer(QWEN, wire, declared).calls == (Call("lookup", arguments(a="1", b="2")),)


# L3, L4: delimiters in values.


ENDINGS = [".<", "<", "</", "a\n<", "\n", "", "</para", "</arg_value", "x</", "a\n\n", "\n\na"]


@every
@streamed
def test_L3_a_value_may_end_in_the_beginning_of_a_delimiter(dialect: Dialect, streams: bool) -> None:
    wanted = tuple(Call("lookup", arguments(query=value)) for value in ENDINGS)
    wanted += tuple(Call("run", value, "custom") for value in ENDINGS)
    assert answer(dialect, dialect.render(wanted), TOOLS, streams=streams, samples=2).calls == wanted


DATA = [
    'if s == "</tool_call>": …',
    'if s == "<tool_call>":\n    return "</function>"',
    "</parameter> and </function>",
    "a\n</parameter>\nb",
    "<parameter=x>\n1",
    "</arg_value> <arg_key>k</arg_key>",
    "x<arg_value>",
    "<｜DSML｜invoke name=",
    "</｜DSML｜parameter>!",
    "</｜DSML｜ parameter> <｜DSML｜ calls>",
    '{"name": "lookup"}',
    '"}\n</tool_call>',
]


@every
@streamed
def test_L4_delimiters_within_a_value_are_data(dialect: Dialect, streams: bool) -> None:
    wanted = tuple(Call("lookup", arguments(query=value, max_results=1)) for value in DATA)
    wanted += tuple(Call("run", value, "custom") for value in DATA)
    found = answer(dialect, dialect.render(wanted), TOOLS, streams=streams, samples=1)
    assert (found.calls, found.content) == (wanted, "")


@every
@streamed
def test_L4_what_ends_a_value_is_data_within_a_json_string(dialect: Dialect, streams: bool) -> None:
    inner = dialect.render([Call("lookup", arguments(exclude=["A"], query="B"))])
    wanted = Call("lookup", arguments(exclude=[inner, inner.partition("A")[2]], where={inner: None}))
    found = answer(dialect, f"{dialect.render([wanted])} Done.", TOOLS, streams=streams, samples=2)
    assert (found.calls, found.content) == ((wanted,), " Done.")


@every
def test_L4_a_quote_that_is_never_closed_ends_with_its_value(dialect: Dialect) -> None:
    if dialect.name != "hermes_json":
        wire = dialect.render([Call("lookup", arguments(exclude=[0], max_results=1))]).replace("[0]", '["a, 0]')
        found = answer(dialect, f'{wire} "Done".', TOOLS)
        assert found.calls == (Call("lookup", '{"exclude": "[\\"a, 0]", "max_results": 1}'),)
        assert found.content == ' "Done".'


@pytest.mark.parametrize("dialect", MARKED.values(), ids=MARKED)
def test_L4_the_spelling_of_a_control_token_is_text(dialect: Dialect) -> None:
    words = vocabulary()
    call = dialect.render(TWO)
    found = check_every_split(
        [call.encode()], words, lambda: Pipeline(words, calls=dialect.parser(TOOLS, streams=False)), samples=2
    )
    assert (found.content, found.calls) == (call, ())
