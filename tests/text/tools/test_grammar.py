"""What the grammars of the formats let a model write (spec/api.md §7.3; L14, L15)."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from dgpp.text.detokenize import Detokenizer, Piece
from dgpp.text.events import Answer, Call, TextDelta, collect
from dgpp.text.tools.declared import Tool, parse_tools
from dgpp.text.tools.dialect import Dialect

from .support import COMPACT, CONTROL, DIALECTS, DSML41, GLM, QWEN, tools
from .walks import TOKENS, accepts, endings, ids, text, value, walk

every = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1},
        "direction": {"enum": ["up", "down", "both"]},
        "flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        "where": {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "additionalProperties": False},
        "level": {"$ref": "#/$defs/level"},
    },
    "required": ["city", "direction"],
    "$defs": {"x": {"type": "null"}, "level": {"enum": [1, 2]}},
}
OPEN = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True}
NUMBERS = {"type": "object", "additionalProperties": {"type": "integer"}}
MANY = {
    "type": "object",
    "properties": {f"k{at}": {"type": "boolean"} for at in range(70)},
    "required": ["k3", "k69"],
    "additionalProperties": False,
}


def functions(*schemas: dict[str, Any], strict: bool = True) -> tuple[Tool, ...]:
    return parse_tools(
        [
            {"type": "function", "function": {"name": f"f{at}", "parameters": schema, "strict": strict}}
            for at, schema in enumerate(schemas)
        ]
    )


def custom(**format: str) -> tuple[Tool, ...]:
    body: dict[str, Any] = {"name": "run"}
    if format:
        body["format"] = {"type": "grammar", "grammar": format}
    return parse_tools([{"type": "custom", "custom": body}])


def parsed(dialect: Dialect, tokens: list[int], declared: tuple[Tool, ...], *, streams: bool) -> Answer:
    """What the parser makes of tokens that begin at the format's opener."""
    parser = dialect.parser(declared, streams=streams)
    pieces = Detokenizer()
    found: list[Any] = []
    data = dialect.lead.encode()
    for position, token in enumerate(tokens):
        if token in parser.markers:
            found += [item for piece in pieces.feed(position, data) + pieces.finish() for item in parser.feed(piece)]
            data = TOKENS[token]
            [piece] = pieces.feed(position, data)
            found += parser.feed(piece, marker=True)
            data = b""
        else:
            data += TOKENS[token]
            found += [item for piece in pieces.feed(position, data) for item in parser.feed(piece)]
            data = b""
    found += [item for piece in pieces.finish() for item in parser.feed(piece)]
    found += parser.finish()
    return collect(TextDelta(item.text) if isinstance(item, Piece) else item for item in found)


def walks(dialect: Dialect, declared: tuple[Tool, ...], least: int, most: int | None, count: int) -> list[Answer]:
    """The answers of `count` random texts of the grammar, each the same whether streamed or not."""
    grammar = dialect.grammar(declared, least=least, most=most, value=value)
    answers: list[Answer] = []
    tails = endings(dialect)
    for seed in range(20 * count):
        tokens = walk(grammar, tails, seed)
        if tokens is None:
            continue
        whole, streamed = (parsed(dialect, tokens, declared, streams=streams) for streams in (False, True))
        assert whole.calls == streamed.calls, text(tokens)
        assert all(call.complete for call in whole.calls), text(tokens)
        assert not (whole.content + streamed.content).strip("\n"), text(tokens)
        answers.append(whole)
        if len(answers) == count:
            break
    assert len(answers) == count, f"only {len(answers)} walks came to an end"
    return answers


@every
def test_L15_whatever_a_strict_grammar_allows_is_a_valid_call(dialect: Dialect) -> None:
    declared = functions(SCHEMA)
    closed = {**SCHEMA, "additionalProperties": False}
    for answer in walks(dialect, declared, 1, 1, 5):
        [call] = answer.calls
        jsonschema.validate(json.loads(call.arguments), closed)


@every
def test_api_7_3_open_and_wide_schemas(dialect: Dialect) -> None:
    declared = functions(OPEN, MANY, NUMBERS)
    for answer in walks(dialect, declared, 1, 1, 4):
        [call] = answer.calls
        jsonschema.validate(json.loads(call.arguments), [OPEN, MANY, NUMBERS][int(call.name[1:])])


@every
def test_api_7_3_without_strict_no_key_is_required_but_none_is_made_up(dialect: Dialect) -> None:
    declared = functions(SCHEMA, {}, strict=False)
    keys = set(SCHEMA["properties"])
    for answer in walks(dialect, declared, 1, 1, 4):
        [call] = answer.calls
        assert set(json.loads(call.arguments)) <= (keys if call.name == "f0" else set())


@every
def test_L14_the_number_of_calls_is_bounded(dialect: Dialect) -> None:
    declared = functions({}, {"type": "object", "properties": {"n": {"type": "boolean"}}}, strict=False)
    for least, most, counts in ((0, 1, {1}), (2, 2, {2}), (1, None, {1, 2, 3, 4, 5, 6, 7, 8, 9}), (2, 3, {2, 3})):
        assert {len(answer.calls) for answer in walks(dialect, declared, least, most, 3)} <= counts


@every
def test_api_7_1_the_input_of_a_custom_tool(dialect: Dialect) -> None:
    for answer in walks(dialect, custom(), 1, 1, 4):
        [call] = answer.calls
        assert (call.name, call.kind) == ("run", "custom")


@every
def test_api_7_3_what_the_template_writes_is_allowed(dialect: Dialect) -> None:
    declared = (*functions(SCHEMA), *custom())
    arguments = {"city": "Ax, é", "days": 3, "direction": "both", "flags": [True], "where": {"x": None}, "level": 2}
    calls = [Call("f0", json.dumps(arguments, ensure_ascii=False)), Call("run", "a\n<b", "custom")]
    flexible = dialect.grammar(declared, least=1, most=None, value=lambda schema, strict: f"%json {json.dumps(schema)}")
    written = dialect.render(calls).removeprefix(dialect.lead)
    markers = dialect.parser(declared, streams=True).markers
    assert accepts(flexible, ids(written, markers))
    assert not accepts(flexible, ids(written.replace("both", "sideways"), markers))
    assert not accepts(flexible, ids(written.replace("f0", "f1"), markers))
    assert not accepts(flexible, ids(written.replace("days", "hours"), markers))


XML = {name: dialect for name, dialect in DIALECTS.items() if "hermes" not in name}


@pytest.mark.parametrize("dialect", XML.values(), ids=XML)
def test_api_7_3_keys_come_in_any_order_each_at_most_once(dialect: Dialect) -> None:
    declared = functions(SCHEMA)
    grammar = dialect.grammar(declared, least=1, most=1, value=value)
    markers = dialect.parser(declared, streams=True).markers

    def allows(**arguments: Any) -> bool:
        written = dialect.render([Call("f0", json.dumps(arguments))]).removeprefix(dialect.lead)
        return accepts(grammar, ids(written, markers))

    assert allows(city="a", direction="up")
    assert allows(direction="up", city="a")
    assert allows(days=1, direction="up", level=1, city="a")
    assert not allows(city="a")
    assert not allows(direction="up")
    twice = dialect.render([Call("f0", '{"city": "a", "direction": "up", "ciyt": "b"}')]).removeprefix(dialect.lead)
    assert not accepts(grammar, ids(twice.replace("ciyt", "city"), markers))


UUID = "123e4567-e89b-12d3-a456-426614174000"


@pytest.mark.parametrize("dialect", [QWEN, GLM, DSML41])
@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"format": "uuid"}, [UUID], ["", UUID[:-1], f'"{UUID}"', f"{UUID}\n"]),
        ({"pattern": "^[a-c]+$"}, ["abc"], ["", "abd", "xabc"]),
        ({"pattern": "b/c|^a"}, ["a", "xb/cx", "axx"], ["xa", "b"]),
        ({"pattern": "(a|b)\\$$"}, ["a$", "xb$"], ["a$x", "c$"]),
        ({"pattern": "[|)]x"}, ["|x", "a)xb"], ["x|"]),
        ({"minLength": 2, "maxLength": 3}, ["ab", "éàü"], ["", "a", "abcd"]),
        ({"format": "date", "pattern": "^2"}, ["2024-02-29"], ["1999-01-01", "2023-02-29"]),
        ({"$ref": "#/$defs/a"}, ["a"], ["b"]),
    ],
)
def test_L15_a_strict_string_keeps_to_its_pattern_format_and_length(
    dialect: Dialect, schema: dict[str, Any], right: list[str], wrong: list[str]
) -> None:
    text = {"type": "string", **schema} if "$ref" not in schema else schema
    root = {"type": "object", "properties": {"s": text}, "$defs": {"a": {"type": "string", "pattern": "^a$"}}}
    markers = dialect.parser((), streams=True).markers
    for strict in (True, False):
        grammar = dialect.grammar(functions(root, strict=strict), least=1, most=1, value=value)
        for given in (*right, *wrong):
            written = dialect.render([Call("f0", json.dumps({"s": given}, ensure_ascii=False))])
            accepted = accepts(grammar, ids(written.removeprefix(dialect.lead), markers))
            assert accepted is (given in right or not strict), given


@pytest.mark.parametrize("dialect", XML.values(), ids=XML)
def test_api_7_1_a_regular_expression_bounds_the_raw_input(dialect: Dialect) -> None:
    declared = custom(syntax="regex", definition=r"(?s:.)*[a-z/]+ [0-9]{2}|SELECT .*")
    grammar = dialect.grammar(declared, least=1, most=1, value=value)
    markers = dialect.parser(declared, streams=True).markers
    for given, wanted in (("go/on 12", True), ("SELECT *", True), ("go 1", False), ("UPDATE x", False)):
        written = dialect.render([Call("run", given, "custom")]).removeprefix(dialect.lead)
        assert accepts(grammar, ids(written, markers)) is wanted


def test_api_7_1_a_lark_grammar_is_left_to_the_caller() -> None:
    asked: list[Any] = []

    def rule(schema: Any, strict: bool) -> str:
        asked.append((schema, strict))
        return '"yes" | "no"'

    declared = custom(syntax="lark", definition='start: "yes" | "no"')
    grammar = QWEN.grammar(declared, least=1, most=1, value=rule)
    own = {"syntax": "lark", "definition": 'start: "yes" | "no"'}
    assert asked == [({"type": "string", "x-dgpp-grammar": own}, True)]
    markers = frozenset(CONTROL.values())
    for given, wanted in (("yes", True), ("maybe", False)):
        assert accepts(grammar, ids(QWEN.render([Call("run", given, "custom")]), markers)) is wanted


def test_api_7_3_a_schema_that_is_no_rule_leaves_its_value_free() -> None:
    declared = functions({"type": "object", "properties": {"n": {"type": "integer"}}})
    grammar = QWEN.grammar(declared, least=1, most=1, value=lambda schema, strict: None)
    written = QWEN.render([Call("f0", '{"n": "whatever"}')])
    assert accepts(grammar, ids(written, frozenset(CONTROL.values())))


def test_api_7_3_the_compact_variant_always_requires_required_keys() -> None:
    declared = functions(SCHEMA, strict=False)
    written = [dialect.render([Call("f0", '{"days": 1}')]) for dialect in (QWEN, COMPACT)]
    grammars = [dialect.grammar(declared, least=1, most=1, value=value) for dialect in (QWEN, COMPACT)]
    markers = frozenset(CONTROL.values())
    assert accepts(grammars[0], ids(written[0], markers))
    assert not accepts(grammars[1], ids(written[1], markers))


@every
def test_L4_free_text_may_hold_delimiters_that_end_nothing(dialect: Dialect) -> None:
    declared = tools(query={"type": "string"})
    grammar = dialect.grammar(declared, least=1, most=1, value=lambda schema, strict: f"%json {json.dumps(schema)}")
    markers = dialect.parser(declared, streams=True).markers
    written = dialect.render([Call("lookup", '{"query": "DATA"}')]).removeprefix(dialect.lead)
    head, _, tail = written.partition("DATA")
    for data in (
        'if s == "</tool_call>": …',
        "</parameter> </arg_value> x",
        "<｜DSML｜invoke",
        "a\n</parameter>\nb",
        "",
    ):
        spelled = json.dumps(data, ensure_ascii=False)[1:-1] if dialect.name == "hermes_json" else data
        assert accepts(grammar, [*ids(head, markers), *ids(spelled, frozenset()), *ids(tail, markers)]), data
