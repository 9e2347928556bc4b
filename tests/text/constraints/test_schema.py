"""What of JSON schemas is enforced, ignored and refused (spec/api.md §8.1; cases A5, J4, J8)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dgpp.text.constraints import GrammarError, compile, parse_response_format
from dgpp.text.constraints.schema import checked_schema
from tests.text.constraints.support import check, draw, json_plan, samples, vocabulary

TEXT: dict[str, Any] = {"type": "string"}


def closed(**properties: Any) -> dict[str, Any]:
    """An object of exactly these properties."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def pointer(schema: Any) -> str:
    """Where a schema is refused, relative to it; the message names the place twice."""
    with pytest.raises(GrammarError) as refused:
        samples(schema, 1)
    error = refused.value
    assert error.code == "unsupported_schema"
    assert error.message.startswith(f"{error.pointer} (#")
    return error.pointer.removeprefix("response_format.json_schema.schema").removeprefix(".")


REFUSED: list[tuple[str, Any]] = [
    ("uniqueItems", {"type": "array", "uniqueItems": True}),
    ("contains", {"type": "array", "contains": TEXT}),
    ("minContains", {"type": "array", "minContains": 1}),
    ("maxContains", {"type": "array", "maxContains": 1}),
    ("contentEncoding", {"type": "string", "contentEncoding": "base64"}),
    ("contentMediaType", {"type": "string", "contentMediaType": "text/plain"}),
    ("not", {"not": TEXT}),
    ("if", {"if": TEXT, "then": {"minLength": 1}}),
    ("propertyNames", {"type": "object", "propertyNames": {"pattern": "^a"}}),
    ("dependentRequired", {"type": "object", "dependentRequired": {"a": ["b"]}}),
    ("dependentSchemas", {"type": "object", "dependentSchemas": {"a": TEXT}}),
    ("unevaluatedProperties", {"type": "object", "unevaluatedProperties": False}),
    ("unevaluatedItems", {"type": "array", "unevaluatedItems": False}),
    ("$dynamicRef", {"$dynamicRef": "#node"}),
    ("nullable", {"type": "string", "nullable": True}),
    ("x-dgpp-grammar", {"type": "string", "x-dgpp-grammar": {"syntax": "regex", "definition": "a"}}),
    ("anything", {"type": "string", "anything": 1}),
    ("properties.a.items.anyOf[1].if", closed(a={"type": "array", "items": {"anyOf": [TEXT, {"if": TEXT}]}})),
    ("$defs.t.not", {"$defs": {"t": {"not": TEXT}}, "$ref": "#/$defs/t"}),
    ("oneOf", {"oneOf": [{"type": "integer"}, {"type": "number"}]}),
    ("oneOf", {"oneOf": [closed(a=TEXT), {"type": "object", "properties": {"a": TEXT}}]}),
    ("oneOf", {"oneOf": [{"properties": {"a": TEXT}}, TEXT]}),  # without a type, the first is also for strings
    ("type", {"type": "text"}),
    ("type", {"type": []}),
    ("type", {"type": ["string", 3]}),
    ("enum", {"enum": []}),
    ("enum", {"enum": "a"}),
    ("enum[1]", {"enum": [1, 2**53 + 1]}),
    ("const[0].a", {"const": [{"a": 0.30000000000000004}]}),
    ("properties", {"type": "object", "properties": []}),
    ("properties.a", {"type": "object", "properties": {"a": 3}}),
    ("required", {"type": "object", "required": "a"}),
    ("minItems", {"type": "array", "minItems": -1}),
    ("minItems", {"type": "array", "minItems": True}),
    ("maxItems", {"type": "array", "minItems": 3, "maxItems": 2}),
    ("maxItems", {"type": "array", "maxItems": 2_000_000_000}),
    ("maxLength", {"type": "string", "minLength": 3, "maxLength": 2}),
    ("maxLength", {"type": "string", "maxLength": 2**31}),
    ("minProperties", {"type": "object", "minProperties": 2}),
    ("maxProperties", {"type": "object", "properties": {"a": TEXT}, "maxProperties": 3}),
    ("maxProperties", {**closed(a=TEXT, b=TEXT), "maxProperties": 1}),
    ("minimum", {"type": "number", "minimum": "3"}),
    ("exclusiveMinimum", {"type": "number", "minimum": 1, "exclusiveMinimum": True}),
    ("multipleOf", {"type": "number", "multipleOf": 0}),
    ("multipleOf", {"type": "number", "multipleOf": -2}),
    ("multipleOf", {"type": "number", "multipleOf": 1_000_003}),
    ("minimum", {"type": "integer", "minimum": 8, "maximum": 13, "multipleOf": 7}),
    ("properties.a.minimum", closed(a={"type": "integer", "minimum": 5, "maximum": 4})),
    ("format", {"type": "string", "format": "regex"}),
    ("format", {"type": "string", "format": "int32"}),
    ("format", {"type": "number", "format": "money"}),
    ("pattern", {"type": "string", "pattern": "^(?=a)b"}),
    ("pattern", {"type": "string", "pattern": r"(a)\1"}),
    ("pattern", {"type": "string", "pattern": r"\bword\b"}),
    ("pattern", {"type": "string", "pattern": "(?i)a"}),
    ("pattern", {"type": "string", "pattern": "a^b"}),
    ("pattern", {"type": "string", "pattern": "[a"}),
    ("pattern", {"type": "string", "pattern": "(a"}),
    ("pattern", {"type": "string", "pattern": "a{2}{3}"}),
    ("pattern", {"type": "string", "pattern": 3}),
    ("patternProperties.(?=a)", {"type": "object", "patternProperties": {"(?=a)": TEXT}}),
    ("$ref", {"$ref": "https://example.com/other.json"}),
    ("$ref", {"$ref": "other.json#/a"}),
    ("$ref", {"$ref": "#/$defs/missing"}),
    ("$ref", {"$ref": "#/anyOf/7", "anyOf": [TEXT]}),
    ("$ref", {"$ref": "#anchor"}),
    ("$ref", {"$ref": 3}),
    ("$ref", {"$ref": "#"}),
    (
        "properties.a.$ref",
        {"$defs": {"t": {"$ref": "#/$defs/u"}, "u": {"$ref": "#/$defs/t"}}, **closed(a={"$ref": "#/$defs/t"})},
    ),
    ("$ref", {"$defs": {"n": closed(next={"$ref": "#/$defs/n"})}, "$ref": "#/$defs/n"}),
    ("$ref", {"$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}, "minItems": 1}}, "$ref": "#/$defs/n"}),
    (
        "$defs.n.allOf[0].$ref",
        {"$defs": {"n": {"allOf": [{"$ref": "#/$defs/n"}, {"maxItems": 1}]}}, "anyOf": [{"$ref": "#/$defs/n"}, TEXT]},
    ),
    ("allOf", {"allOf": []}),
    ("anyOf", {"anyOf": {}}),
    ("items", {"items": [TEXT], "prefixItems": [TEXT]}),
    ("", {"type": "object", "properties": {f"p{at}": TEXT for at in range(600)}}),
    ("patternProperties", {"type": "object", "patternProperties": {"^x": TEXT, "y$": TEXT}}),  # "xy" has both
    ("enum", {"type": "string", "enum": [1]}),
    ("properties.a.const", closed(a={"const": "x", "pattern": "^y"})),
    ("", {"anyOf": [False]}),
]


@pytest.mark.parametrize(("at", "schema"), REFUSED, ids=[f"{n}-{at}" for n, (at, _) in enumerate(REFUSED)])
def test_J8_refused_keyword_is_named(at: str, schema: Any) -> None:
    assert pointer(schema) == at or (at == "$defs.n.allOf[0].$ref" and pointer(schema).endswith("$ref"))


ENFORCED: dict[str, Any] = {
    "ignored keywords": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.com/a.json",
        "$comment": "c",
        "title": "t",
        "description": "d",
        "default": {},
        "examples": [1],
        "deprecated": True,
        "readOnly": True,
        "writeOnly": False,
        "$defs": {"unused": {"not": {}}},
        "definitions": {},
        "x-order": 3,
        "uniqueItems": False,
        "type": "boolean",
    },
    "types": {"type": ["null", "boolean", "integer", "string"]},
    "open object": {"type": "object", "properties": {"a": {"type": "integer"}, 'é"\n': {"type": "null"}}},
    "typed rest": {"type": "object", "properties": {"a": TEXT}, "additionalProperties": {"type": "integer"}},
    "map": {"type": "object", "additionalProperties": {"type": "boolean"}, "minProperties": 1, "maxProperties": 3},
    "undeclared required": {"type": "object", "required": ["z"], "additionalProperties": {"type": "null"}},
    "at least one": {**closed(), "properties": {"a": TEXT, "b": TEXT}, "minProperties": 1},
    "exactly one": {**closed(), "properties": {"a": TEXT, "b": TEXT}, "minProperties": 1, "maxProperties": 1},
    "patterns of keys": {
        "type": "object",
        "properties": {"x1": {"type": "integer"}},
        "patternProperties": {"^x": {"type": ["integer", "null"]}, "^y": {"type": "boolean"}},
    },
    "tuple": {"type": "array", "prefixItems": [{"type": "integer"}, TEXT], "items": {"type": "null"}, "minItems": 1},
    "tuple of draft 7": {"type": "array", "items": [{"type": "integer"}, TEXT], "additionalItems": False},
    "bounded array": {"type": "array", "items": {"enum": [1, "a"]}, "minItems": 2, "maxItems": 3},
    "enum and type": {"type": "string", "enum": ["a", 1, None, "b"]},
    "enum and pattern": {"type": "string", "enum": ["ab", "b", "abc"], "pattern": "^a", "maxLength": 2},
    "enum and bounds": {
        "type": "number",
        "enum": [1, 2, 3.5, 9],
        "minimum": 2,
        "multipleOf": 0.5,
        "exclusiveMaximum": 9,
    },
    "containers": {"enum": [{"b": [1, {"c": None}], "a": "é"}, [True, []], {}]},
    "const": {"const": {"kind": "x", "n": -3}},
    "all of": {
        "allOf": [
            closed(a=TEXT) | {"additionalProperties": True},
            {"required": ["b"], "properties": {"b": {"type": "null"}}},
        ]
    },
    "any of beside": {
        "type": "object",
        "properties": {"k": {"enum": ["x", "y"]}},
        "required": ["k"],
        "anyOf": [{"required": ["a"]}, {"properties": {"k": {"const": "y"}}}],
    },
    "one of kinds": {"oneOf": [TEXT, {"type": "integer"}, {"type": ["null", "boolean"]}]},
    "one of constants": {"oneOf": [{"const": "a"}, {"enum": ["b", "c"]}, {"const": 1}, {"const": True}]},
    "one of ranges": {"oneOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "minimum": 5}]},
    "one of closed": {"oneOf": [closed(a=TEXT), closed(b=TEXT)]},
    "discriminated": {
        "$defs": {
            "cat": closed(kind={"const": "cat"}, lives={"type": "integer"}),
            "dog": closed(kind={"enum": ["dog", "wolf"]}),
        },
        "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
        "discriminator": {"propertyName": "kind"},
    },
    "pattern and format": {"type": "string", "pattern": "^2", "format": "date", "minLength": 10},
    "unbounded format": {"type": "number", "format": "double", "minimum": 0},
    "int64": {"type": "integer", "format": "int64", "minimum": 9223372036854770000},
    "untyped bounds": {"minimum": 3, "maximum": 4},
    "true": {"type": "array", "items": True, "maxItems": 1},
    "false property": {"type": "object", "properties": {"a": False, "b": TEXT}, "additionalProperties": False},
}


@pytest.mark.parametrize("name", ENFORCED)
def test_J8_accepted_is_enforced(name: str) -> None:
    for text in samples(ENFORCED[name], 25):
        check(ENFORCED[name], text)


REFERENCES: dict[str, Any] = {
    "recursion": {
        "$defs": {
            "n": {
                "type": "object",
                "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/n"}}},
                "required": ["v", "kids"],
                "additionalProperties": False,
            }
        },
        "$ref": "#/$defs/n",
    },
    "mutual recursion": {
        "$defs": {
            "even": {"type": "array", "items": {"$ref": "#/$defs/odd"}},
            "odd": {"type": "object", "additionalProperties": {"$ref": "#/$defs/even"}},
        },
        "$ref": "#/$defs/even",
    },
    "root": {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False},
    "property": closed(a={"type": "integer", "minimum": 3}, b={"$ref": "#/properties/a"}),
    "array index": {
        "anyOf": [
            {"type": "array", "items": [{"type": "null"}, {"enum": ["u", "v"]}], "additionalItems": False},
            {"$ref": "#/anyOf/0/items/1"},
        ]
    },
    "enum": {"$defs": {"colour": {"enum": ["red", "blue"]}}, **closed(c={"$ref": "#/$defs/colour"})},
    "escapes": {"$defs": {"a/b~c %": {"type": "null"}}, **closed(c={"$ref": "#/$defs/a~1b~0c%20%25"})},
    "anchor": {"$defs": {"t": {"$anchor": "here", "type": "null"}}, **closed(c={"$ref": "#here"})},
    "own id": {
        "$id": "https://example.com/s",
        "$defs": {"t": {"type": "null"}},
        **closed(c={"$ref": "https://example.com/s#/$defs/t"}),
    },
    "definitions": {
        "definitions": {"t": {"type": "boolean"}},
        **closed(c={"$ref": "#/definitions/t", "description": "beside"}),
    },
    "siblings": {"$defs": {"t": {"type": "integer"}}, **closed(c={"$ref": "#/$defs/t", "minimum": 5, "maximum": 7})},
    "all of one": {"$defs": {"t": {"type": "integer"}}, **closed(c={"allOf": [{"$ref": "#/$defs/t"}], "default": 1})},
    "tree": {
        "$defs": {
            "e": {
                "anyOf": [
                    {"type": "integer"},
                    closed(
                        op={"enum": ["+", "-"]},
                        args={"type": "array", "items": {"$ref": "#/$defs/e"}, "minItems": 1, "maxItems": 2},
                    ),
                ]
            }
        },
        "$ref": "#/$defs/e",
    },
}


@pytest.mark.parametrize("name", REFERENCES)
def test_J4_local_references(name: str) -> None:
    for text in samples(REFERENCES[name], 15):
        check(REFERENCES[name], text)


def test_J4_references_are_never_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    for reference in ("http://127.0.0.1/s.json", "file:///etc/passwd", "//127.0.0.1/s", "s.json"):
        assert pointer({"$ref": reference}) == "$ref"


def test_J8_declared_keys_come_once_and_in_order() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}}
    for text in samples(schema, 40):
        keys = [key for key, _ in json.loads(text, object_pairs_hook=list)]
        assert [key for key in keys if key in ("a", "b")] == [key for key in ("a", "b") if key in keys]


@pytest.mark.parametrize("rest", [True, {"type": "string"}])
def test_J8_declared_key_cannot_come_again_in_another_spelling(rest: Any) -> None:
    schema = {"type": "object", "properties": {"ab": {"type": "integer"}}, "additionalProperties": rest}
    make = compile(json_plan(schema), vocabulary())
    assert make is not None
    for spelling in (rb'"ab"', rb'"\u0061b"', rb'"a\u0062"'):
        constraint = make()
        text = b'{"ab":1,' + spelling + b':"x"}'
        taken = 0
        while taken < len(text) and constraint.allowed()[text[taken]]:  # type: ignore[index]
            constraint.accept(text[taken])
            taken += 1
        assert taken < 8 + len(spelling)


def test_J8_excluded_integers_stay_out_of_merged_bounds() -> None:
    schema = {"allOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "number", "maximum": 0.5}]}
    for text in samples(schema, 60):
        check(schema, text)


def test_api_8_1_strings_hold_whole_characters_and_every_control_character() -> None:
    make = compile(json_plan({"type": "string", "minLength": 1, "maxLength": 2}), vocabulary())
    assert make is not None
    for text in ('"é"', '"😀日"', '"\\u001b\\n"', '"\\"\\\\"'):
        constraint = make()
        for byte in text.encode():
            constraint.accept(byte)
        assert json.loads(text)
    for seed in range(30):
        _, data = draw(make, vocabulary(), seed)
        assert 1 <= len(json.loads(data)) <= 2


def test_A5_surrogates_are_refused_where_they_are() -> None:
    for schema, at in (
        ({"properties": {"a": {"const": "\ud83d"}}}, "properties.a.const"),
        ({"properties": {"\ud83d": {}}}, "properties"),
    ):
        with pytest.raises(GrammarError, match="unpaired surrogate") as refused:
            parse_response_format({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})
        assert refused.value.pointer == f"response_format.json_schema.schema.{at}"
        assert refused.value.code is None


def test_J8_path_of_a_schema_within_another() -> None:
    root = {"$defs": {"t": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/t"}, "b": {"not": {}}}}
    checked = checked_schema(
        root["properties"]["a"], "tools[2].function.parameters", root=root, steps=("properties", "a")
    )
    assert json.loads(checked.text)["$defs"] == {"d0": {"type": "integer"}}
    with pytest.raises(GrammarError) as refused:
        checked_schema(root["properties"]["b"], "tools[2].function.parameters", root=root, steps=("properties", "b"))
    assert refused.value.pointer == "tools[2].function.parameters.properties.b.not"
