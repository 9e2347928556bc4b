"""Values of tool arguments in the formats of calls (spec/api.md §7.1, §7.3; cases J4, J8, L15)."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest

from dgpp.text.constraints import GrammarError, Plan, Tools, compile
from dgpp.text.detokenize import Piece
from dgpp.text.events import Answer, collect
from dgpp.text.tools.declared import parse_tool_choice, parse_tools
from dgpp.text.tools.dialect import Dialect
from dgpp.text.tools.hermes_json import HermesJson
from dgpp.text.tools.qwen_xml import QwenXml
from tests.text.constraints.support import check, draw, feed, vocabulary

WORDS = vocabulary()
IDS = WORDS.tokenizer.control_tokens
DIALECTS: dict[str, Dialect] = {"xml": QwenXml(IDS), "json": HermesJson(IDS)}


def function(name: str, parameters: Any, strict: bool = False) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, "strict": strict}}


def custom(name: str, syntax: str, definition: str) -> dict[str, Any]:
    format = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    return {"type": "custom", "custom": {"name": name, "format": format}}


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def plan(declared: list[dict[str, Any]], dialect: str, choice: Any = "required") -> Plan:
    tools = parse_tools(declared)
    return Plan(tools=Tools(tools, DIALECTS[dialect], parse_tool_choice(choice, tools, False)))


def answers(declared: list[dict[str, Any]], dialect: str, count: int = 12) -> list[Answer]:
    """Random answers of one call each, read by the format's parser."""
    make = compile(plan(declared, dialect), WORDS)
    assert make is not None
    found = []
    for seed in range(count):
        ids, _ = draw(make, WORDS, seed)
        parser = DIALECTS[dialect].parser(parse_tools(declared), streams=True)
        text = b"".join(WORDS.token_bytes(id) or _marker(id) for id in ids).decode()
        events: list[Any] = []
        for part in re.split("(</?tool_call>)", text):
            if part:
                events += parser.feed(Piece(part, ()), part in ("<tool_call>", "</tool_call>"))
        events += parser.finish()
        found.append(collect(event for event in events if not isinstance(event, Piece)))
    return found


def _marker(id: int) -> bytes:
    return next(text for text, other in IDS.items() if other == id).encode()


def refusal(declared: list[dict[str, Any]], dialect: str) -> GrammarError:
    with pytest.raises(GrammarError) as refused:
        compile(plan(declared, dialect), WORDS)
    return refused.value


ARGUMENTS: dict[str, Any] = {
    "scalars": closed(n={"type": "integer", "minimum": 3}, ok={"type": "boolean"}, nothing={"type": "null"}),
    "enum": closed(unit={"enum": ["celsius", "kelvin"]}, level={"enum": [1, 2, None]}),
    "text": {
        "$defs": {"day": {"type": "string", "format": "date"}},
        **closed(
            id={"type": "string", "format": "uuid"},
            day={"$ref": "#/$defs/day"},
            code={"type": "string", "pattern": "^[A-C]+$|x", "minLength": 1, "maxLength": 2},
        ),
    },
    "array": closed(ids={"type": "array", "items": {"type": "string", "format": "uuid"}, "maxItems": 2}),
    "references": {
        "$defs": {"p": closed(x={"type": "number"})},
        **closed(at={"$ref": "#/$defs/p"}, to={"type": "array", "items": {"$ref": "#/$defs/p"}, "maxItems": 2}),
    },
    "reference to a property": closed(
        a={"type": "array", "items": {"type": "integer"}, "maxItems": 2},
        b={"type": "array", "items": {"$ref": "#/properties/a"}, "maxItems": 2},
    ),
    "recursion": {
        "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}},
        **closed(tree={"$ref": "#/$defs/t"}),
    },
}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_L15_strict_arguments_fit_their_schema(name: str, dialect: str) -> None:
    for answer in answers([function("act", ARGUMENTS[name], strict=True)], dialect):
        (call,) = answer.calls
        assert call.complete
        check(ARGUMENTS[name], call.arguments)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_J4_equal_references_of_different_tools_mean_their_own_definitions(dialect: str) -> None:
    texts = [
        json.dumps(
            {
                "$defs": {"x": {"enum": [at]}},
                **closed(
                    v={"type": "array", "items": {"$ref": "#/$defs/x"}, "minItems": 1, "maxItems": 1},
                    w={"$ref": "#/properties/v"},
                ),
            }
        )
        for at in (1, 2)
    ]
    declared = [function(f"tool_{at}", json.loads(text), strict=True) for at, text in enumerate(texts)]
    for at in (0, 1):
        choice = {"type": "function", "function": {"name": f"tool_{at}"}}
        make = compile(plan(declared, dialect, choice), WORDS)
        assert make is not None
        _, data = draw(make, WORDS, 1)
        assert str(at + 1) in data.decode().split("tool_")[1][1:]
        assert str(2 - at) not in data.decode().split("tool_")[1][1:]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_api_7_3_strict_schema_outside_the_subset_is_refused(dialect: str) -> None:
    tools = [
        function("first", closed()),
        function("second", closed(a={"type": "array", "items": {"not": {}}}), strict=True),
    ]
    error = refusal(tools, dialect)
    assert (error.pointer, error.code) == ("tools[1].function.parameters.properties.a.items.not", "unsupported_schema")


@pytest.mark.parametrize(
    ("at", "parameters"),
    [
        ("anyOf", {**closed(a={}), "anyOf": [{"required": ["a"]}]}),
        ("patternProperties", {"type": "object", "patternProperties": {"^a": {"type": "null"}}}),
        ("additionalProperties", {"type": "object", "additionalProperties": {"type": "null"}}),
        ("properties.a.maxLength", closed(a={"type": ["string", "null"], "maxLength": 3})),
        ("properties.a.anyOf[1].format", closed(a={"anyOf": [{"type": "null"}, {"type": "string", "format": "date"}]})),
        ("properties.a.type", closed(a={"type": ["string", "integer"]})),
        ("properties.a.anyOf", closed(a={"anyOf": [{"type": "string"}, closed()]})),
    ],
)
def test_J8_strict_tool_is_refused_for_what_text_arguments_leave_open(at: str, parameters: Any) -> None:
    error = refusal([function("act", parameters, strict=True)], "xml")
    assert (error.pointer, error.code) == (f"tools[0].function.parameters.{at}", "unsupported_schema")
    for answer in answers([function("act", parameters, strict=True)], "json", 4):
        (call,) = answer.calls
        if at not in ("patternProperties", "additionalProperties"):
            check(parameters, call.arguments)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_api_7_3_schema_of_other_tools_is_enforced_as_far_as_it_can_be(
    dialect: str, caplog: pytest.LogCaptureFixture
) -> None:
    parameters = closed(
        numbers={"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "maxItems": 3},
        shape={"type": "object", "if": {}},
    )
    with caplog.at_level(logging.WARNING):
        found = answers([function(f"act-{dialect}", parameters)], dialect)
    assert "only as far as possible" in caplog.text
    for answer in found:
        (call,) = answer.calls
        arguments = json.loads(call.arguments)
        if dialect == "xml":
            assert all(type(number) is int for number in arguments.get("numbers", ()))
            assert isinstance(arguments.get("shape", {}), dict)
        else:
            assert isinstance(arguments, dict)
    caplog.clear()
    compile(plan([function(f"act-{dialect}", parameters)], dialect), WORDS)
    assert not caplog.text  # said once


def test_api_7_3_value_of_a_schema_that_cannot_be_enforced_is_free() -> None:
    make = compile(plan([function("act", closed(a={"not": {"type": "null"}}))], "xml"), WORDS)
    assert make is not None
    text = "\n<function=act>\n<parameter=a>\nany text at all, {\n</parameter>\n</function>\n"
    feed(make(), WORDS.tokenizer.ids("<tool_call>", text, "</tool_call>", "<eos>"))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_api_7_1_custom_tool_with_a_regular_expression(dialect: str) -> None:
    for answer in answers([custom("sql", "regex", "SELECT [a-z]{1,3}( FROM [A-Z]+)?")], dialect):
        (call,) = answer.calls
        assert call.kind == "custom"
        assert re.fullmatch("SELECT [a-z]{1,3}( FROM [A-Z]+)?", call.arguments)


def test_api_7_1_custom_tool_with_a_lark_grammar() -> None:
    grammar = 'start: NAME ("," NAME)*\nNAME: /[a-z]{1,3}/'
    for answer in answers([custom("names", "lark", grammar)], "xml"):
        (call,) = answer.calls
        assert re.fullmatch("[a-z]{1,3}(,[a-z]{1,3})*", call.arguments)
    error = refusal([custom("names", "lark", grammar)], "json")
    assert (error.pointer, error.code) == ("tools[0].custom.format.grammar", "invalid_grammar")
    assert "regex is supported" in error.message


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("syntax", "definition"),
    [("regex", "["), ("regex", "(?=a)"), ("regex", "(?i)a)"), ("lark", "start: ("), ("lark", "start: %json {}")],
)
def test_api_7_1_custom_format_that_is_no_grammar(dialect: str, syntax: str, definition: str) -> None:
    error = refusal([function("f", closed()), custom("c", syntax, definition)], dialect)
    assert (error.pointer, error.code) == ("tools[1].custom.format.grammar", "invalid_grammar")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_api_7_2_128_tools_are_compiled(dialect: str) -> None:
    tools = [
        function(
            f"tool_{at}",
            closed(a={"type": "integer"}, b={"type": "array", "items": {"enum": [at]}}, c={"type": "string"}),
            strict=at % 2 == 0,
        )
        for at in range(128)
    ]
    for choice in ("auto", "required", {"type": "function", "function": {"name": "tool_77"}}):
        make = compile(plan(tools, dialect, choice), WORDS)
        assert make is not None
        make().allowed()
