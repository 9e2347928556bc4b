"""The request's `response_format` (spec/api.md §8), with regular expressions and Lark as extensions."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest

from dgpp.text.constraints import GrammarError, Plan, ResponseFormat, compile, parse_response_format
from tests.text.constraints.support import draw, vocabulary

WORDS = vocabulary()
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def answers(value: Any, count: int = 10) -> list[str]:
    """Random answers in the form."""
    make = compile(Plan(parse_response_format(value)), WORDS)
    assert make is not None
    return [draw(make, WORDS, seed)[1].decode() for seed in range(count)]


def refusal(value: Any) -> GrammarError:
    """How a form is refused, when it is read or when it is compiled."""
    with pytest.raises(GrammarError) as refused:
        compile(Plan(parse_response_format(value)), WORDS)
    assert refused.value.pointer in refused.value.message
    return refused.value


@pytest.mark.parametrize("value", [None, {"type": "text"}])
def test_api_8_text_is_free(value: Any) -> None:
    assert parse_response_format(value) == ResponseFormat()
    assert compile(Plan(parse_response_format(value)), WORDS) is None


@pytest.mark.parametrize(
    "value",
    [
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "a"}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": None}},
    ],
)
def test_api_8_json_object_is_any_object(value: Any) -> None:
    for text in answers(value):
        assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize("strict", [True, False, None])
def test_api_8_schema_is_enforced_also_when_it_is_not_strict(strict: bool | None) -> None:
    for text in answers(
        {
            "type": "json_schema",
            "json_schema": {"name": "a-b_1", "schema": SCHEMA, "strict": strict, "description": "d"},
        }
    ):
        assert isinstance(json.loads(text)["a"], int)


@pytest.mark.parametrize(
    ("value", "at"),
    [
        ("json", "response_format"),
        ([], "response_format"),
        ({}, "response_format.type"),
        ({"type": "xml"}, "response_format.type"),
        ({"type": ["text"]}, "response_format.type"),
        ({"type": "json_schema"}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": []}, "response_format.json_schema"),
        ({"type": "json_schema", "json_schema": {}}, "response_format.json_schema.name"),
        ({"type": "json_schema", "json_schema": {"name": ""}}, "response_format.json_schema.name"),
        ({"type": "json_schema", "json_schema": {"name": "a b"}}, "response_format.json_schema.name"),
        ({"type": "json_schema", "json_schema": {"name": "x" * 65}}, "response_format.json_schema.name"),
        ({"type": "json_schema", "json_schema": {"name": "a", "strict": 1}}, "response_format.json_schema.strict"),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "description": 1}},
            "response_format.json_schema.description",
        ),
        ({"type": "json_schema", "json_schema": {"name": "a", "schema": True}}, "response_format.json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"name": "a", "schema": "{}"}}, "response_format.json_schema.schema"),
        ({"type": "regex"}, "response_format.pattern"),
        ({"type": "regex", "pattern": ""}, "response_format.pattern"),
        ({"type": "grammar"}, "response_format.grammar"),
        ({"type": "grammar", "grammar": {"definition": "a"}}, "response_format.grammar.syntax"),
        ({"type": "grammar", "grammar": {"syntax": "gbnf", "definition": "a"}}, "response_format.grammar.syntax"),
        ({"type": "grammar", "grammar": {"syntax": "lark"}}, "response_format.grammar.definition"),
        ({"type": "regex", "pattern": "\ud83d"}, "response_format.pattern"),
    ],
)
def test_api_8_fields_of_a_wrong_kind(value: Any, at: str) -> None:
    error = refusal(value)
    assert (error.pointer, error.code) == (at, None)


def test_api_8_strict_schema_outside_the_subset_is_refused() -> None:
    schema = {"type": "object", "properties": {"a": {"not": {}}}}
    error = refusal({"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}})
    assert (error.pointer, error.code) == ("response_format.json_schema.schema.properties.a.not", "unsupported_schema")
    assert "#/properties/a/not" in error.message


@pytest.mark.parametrize(
    "schema",
    [{"type": "array", "contains": {}}, {"type": "array", "items": {"type": "string", "enum": [1]}, "minItems": 1}],
)
def test_api_8_other_schema_outside_the_subset_is_any_object_with_a_warning(
    schema: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for text in answers({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}, 5):
            assert isinstance(json.loads(text), dict)
    assert "any JSON object" in caplog.text
    assert "response_format.json_schema.schema" in caplog.text


@pytest.mark.parametrize(
    "value",
    [
        {"type": "regex", "pattern": "x{2}/[0-9]+é?"},
        {"type": "grammar", "grammar": {"syntax": "regex", "definition": "x{2}/[0-9]+é?"}},
    ],
)
def test_api_8_regex_is_matched_whole(value: Any) -> None:
    for text in answers(value):
        assert re.fullmatch("xx/[0-9]+é?", text)


SUM = r"""
start: sum
sum: product | sum "+" product  // left recursion
product: atom ("*" atom)*
atom: NUMBER | "-" atom | "(" sum ")" | NAME ["!"]
NAME: /[a-c]/
%import common.INT -> NUMBER
%ignore " "
"""


def test_api_8_1_lark_grammar() -> None:
    source = "start: sum\n" + SUM.split("start: sum\n")[1].replace("common.INT -> NUMBER", "common.INT").replace(
        "NUMBER", "INT"
    )
    for text in answers({"type": "grammar", "grammar": {"syntax": "lark", "definition": source}}, 30):
        assert re.fullmatch(r"[-+*()0-9a-c! ]+", text)
        assert text.count("(") == text.count(")")


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ("start: other", "other"),
        ("start: (", ""),
        ("begin: /a/", "start"),
        ("start: %json {}", "%json"),
        ('%llguidance {"no_forcing": true}\nstart: "a"', "%llguidance"),
        ("start: %lark { start: /a/ }", "%lark"),
        ('start: %regex {"substring_chars": "ab"}', "%regex"),
        ("%declare A\nstart: A", "%declare"),
        ("start: <tool_call>", "control tokens"),
        ("start: <[3]>", "control tokens"),
        ("start[max_tokens=3]: /a*/", "options of rules"),
        ("start: a\na[lazy]: /a*/", "options of rules"),
        ("start: A\nA.2: /a*/", "priorities"),
        ("start: @other", "references"),
        ("start: start", "fits no text"),
        ('start: start "a"', "fits no text"),
        ("start: /[/", ""),
        ("start: /(?=a)b/", ""),
        (r"start: /(a)\1/", ""),
    ],
)
def test_api_8_1_lark_that_is_refused(definition: str, reason: str) -> None:
    error = refusal({"type": "grammar", "grammar": {"syntax": "lark", "definition": definition}})
    assert (error.pointer, error.code) == ("response_format.grammar.definition", "invalid_grammar")
    assert reason in error.message


def test_api_8_1_lark_spellings_within_texts_are_no_syntax() -> None:
    definition = 'start: "<b>" /%json|<a>/ "@x" // <c> %json\n'
    for text in answers({"type": "grammar", "grammar": {"syntax": "lark", "definition": definition}}):
        assert text in ("<b>%json@x", "<b><a>@x")


@pytest.mark.parametrize("pattern", ["[", "(a", r"\1", "(?=a)", "a{100000000000}"])
def test_api_8_regex_that_is_refused(pattern: str) -> None:
    error = refusal({"type": "regex", "pattern": pattern})
    assert (error.pointer, error.code) == ("response_format.pattern", "invalid_grammar")


def test_api_8_regex_that_fits_nothing_is_refused() -> None:
    assert "fits no text" in refusal({"type": "regex", "pattern": r"[^\s\S]"}).message
