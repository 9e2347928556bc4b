"""Unions, intersections and discriminators."""

from __future__ import annotations

from typing import Any

from tests.text.constraints.corpus.shapes import (
    BOOL,
    DAY,
    INT,
    NULL,
    NUMBER,
    TEXT,
    arr,
    defs,
    enum,
    maybe,
    num,
    obj,
    ref,
    text,
    whole,
)

CAT = obj(kind={"const": "cat"}, lives=whole(1, 9))
DOG = obj(kind={"const": "dog"}, tricks=arr(TEXT, 0, 2))

SCHEMAS: dict[str, Any] = {
    "pets": defs({"oneOf": [ref("cat"), ref("dog")], "discriminator": {"propertyName": "kind"}}, cat=CAT, dog=DOG),
    "list of pets": defs(arr({"oneOf": [ref("cat"), ref("dog")]}, 1, 2), cat=CAT, dog=DOG),
    "any of pets": {"anyOf": [CAT, DOG]},
    "shape": {
        "oneOf": [
            obj(shape={"const": "circle"}, radius=num(0)),
            obj(shape={"const": "box"}, width=num(0), height=num(0)),
        ]
    },
    "result": {"oneOf": [obj(ok={"const": True}, value=INT), obj(ok={"const": False}, error=TEXT)]},
    "value or error": {"anyOf": [obj(value=NUMBER), obj(error=TEXT)]},
    "string or number": {"anyOf": [TEXT, NUMBER]},
    "type list": {"type": ["string", "integer", "boolean", "null"]},
    "one of types": {"oneOf": [TEXT, INT, BOOL, NULL, arr(INT, 0, 2)]},
    "one of constants": {"oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]},
    "one of ranges": {"oneOf": [whole(0, 9), whole(100, 109)]},
    "one of lengths": {"oneOf": [text(maxLength=2), text(minLength=5, maxLength=6)]},
    "one of closed objects": {"oneOf": [obj(a=INT), obj(b=INT)]},
    "one of required": {"oneOf": [obj("a", rest=False, a=INT, c=INT), obj("b", rest=False, b=INT, c=INT)]},
    "optional string": maybe(TEXT),
    "optional object": maybe(obj(a=INT)),
    "nested options": {"anyOf": [{"anyOf": [INT, {"anyOf": [NULL, {"anyOf": [BOOL, DAY]}]}]}, arr(TEXT, 0, 1)]},
    "event stream": arr(
        {
            "anyOf": [
                obj(type={"const": "start"}, at=INT),
                obj(type={"const": "text"}, text=TEXT),
                obj(type={"const": "stop"}),
            ]
        },
        1,
        3,
    ),
    "message parts": arr(
        {
            "oneOf": [
                obj(type={"const": "text"}, text=TEXT),
                obj(type={"const": "image"}, url=text(format="uri"), detail=enum("low", "high")),
            ]
        },
        1,
        2,
    ),
    "expression": {"anyOf": [NUMBER, obj(op=enum("+", "*"), left=NUMBER, right=NUMBER)]},
    "base and extension": {"allOf": [obj("id", rest=None, id=INT), obj("name", rest=None, name=TEXT)]},
    "all of one reference": defs(obj(owner={"allOf": [ref("person")], "title": "Owner"}), person=obj(name=TEXT)),
    "all of definitions": defs(
        {"allOf": [ref("base"), {"properties": {"size": whole(1, 5)}, "required": ["size"]}]},
        base=obj("kind", rest=None, kind=enum("x", "y")),
    ),
    "narrowed number": {"allOf": [NUMBER, {"minimum": 2}, {"exclusiveMaximum": 3}]},
    "narrowed integer": {"allOf": [whole(0, 100), {"type": "number", "multipleOf": 7}]},
    "narrowed string": {"allOf": [text(pattern="^[a-z]+$"), text(minLength=2, maxLength=5)]},
    "narrowed reference": defs(obj(port=ref("port") | {"minimum": 1024}), port=whole(1, 65535)),
    "options with common part": obj("kind", rest=None, kind=enum("a", "b"))
    | {"anyOf": [{"required": ["x"], "properties": {"x": INT}}, {"properties": {"kind": {"const": "b"}}}]},
    "either key": {
        "type": "object",
        "properties": {"a": INT, "b": INT},
        "additionalProperties": False,
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "union with a map": {
        "anyOf": [{"type": "object", "additionalProperties": INT, "maxProperties": 2}, arr(INT, 0, 2)]
    },
    "tagged tuple": {
        "anyOf": [
            {"type": "array", "prefixItems": [{"const": "move"}, INT, INT], "items": False, "minItems": 3},
            {"type": "array", "prefixItems": [{"const": "quit"}], "items": False, "minItems": 1},
        ]
    },
    "enum of kinds": enum("auto", 0, 1.5, None, False, [], [1, "a"], {"mode": "manual", "level": 3}),
    "constant object": {"const": {"version": 1, "features": ["a", "b"], "nested": {"x": None}}},
    "filtered enum": {"type": "integer", "enum": [1, 2.5, "3", 4], "maximum": 4},
}
