"""References, recursion and deep nesting."""

from __future__ import annotations

from typing import Any

from tests.text.constraints.corpus.shapes import (
    BOOL,
    INT,
    NULL,
    NUMBER,
    TEXT,
    arr,
    defs,
    enum,
    maybe,
    obj,
    ref,
    text,
    whole,
)


def nested(depth: int) -> dict[str, Any]:
    """Objects within objects."""
    return obj(v=INT) if depth == 0 else obj("inner", inner=nested(depth - 1), note=TEXT)


SCHEMAS: dict[str, Any] = {
    "tree": defs(ref("node"), node=obj(value=INT, children=arr(ref("node"), 0, 2))),
    "binary tree": defs(ref("node"), node=obj(value=INT, left=maybe(ref("node")), right=maybe(ref("node")))),
    "linked list": defs(ref("cell"), cell=obj(head=INT, tail=maybe(ref("cell")))),
    "root recursion": {
        "type": "object",
        "properties": {"name": TEXT, "parts": arr({"$ref": "#"}, 0, 2)},
        "required": ["name"],
        "additionalProperties": False,
    },
    "json value": defs(
        ref("any"),
        any={
            "anyOf": [
                NULL,
                BOOL,
                NUMBER,
                TEXT,
                arr(ref("any"), 0, 2),
                {"type": "object", "additionalProperties": ref("any"), "maxProperties": 2},
            ]
        },
    ),
    "arithmetic": defs(ref("e"), e={"anyOf": [INT, obj(op=enum("+", "-", "*"), args=arr(ref("e"), 2, 2))]}),
    "filter": defs(
        ref("f"),
        f={
            "anyOf": [
                obj(field=TEXT, equals={"type": ["string", "number"]}),
                obj(all=arr(ref("f"), 1, 2)),
                obj(none=ref("f")),
            ]
        },
    ),
    "menu": defs(arr(ref("item"), 1, 2), item=obj("label", label=TEXT, items=arr(ref("item"), 0, 2))),
    "comments": defs(
        obj(thread=arr(ref("comment"), 0, 2)),
        comment=obj("text", text=text(maxLength=15), replies=arr(ref("comment"), 0, 1)),
    ),
    "file system": defs(
        ref("entry"),
        entry={
            "oneOf": [
                obj(type={"const": "file"}, size=whole(0)),
                obj(
                    type={"const": "dir"},
                    entries={"type": "object", "additionalProperties": ref("entry"), "maxProperties": 2},
                ),
            ]
        },
    ),
    "organisation": defs(
        ref("person"), person=obj("name", name=TEXT, reports=arr(ref("person"), 0, 2), title=maybe(TEXT))
    ),
    "even and odd": defs(ref("even"), even={"anyOf": [NULL, obj(odd=ref("odd"))]}, odd=obj(even=ref("even"))),
    "ui components": defs(
        ref("c"),
        c={
            "anyOf": [obj(type={"const": "text"}, value=TEXT), obj(type={"const": "row"}, children=arr(ref("c"), 0, 2))]
        },
    ),
    "html": defs(
        ref("el"),
        el=obj(
            "tag",
            tag=enum("div", "p", "b"),
            attributes={"type": "object", "additionalProperties": TEXT, "maxProperties": 1},
            content=arr({"anyOf": [text(maxLength=8), ref("el")]}, 0, 2),
        ),
    ),
    "state machine": defs(
        obj(
            initial=TEXT,
            states={"type": "object", "additionalProperties": ref("state"), "minProperties": 1, "maxProperties": 2},
        ),
        state=obj("", on={"type": "object", "additionalProperties": TEXT, "maxProperties": 2}, final=BOOL),
    ),
    "type expression": defs(
        ref("t"), t={"anyOf": [enum("int", "str"), obj(list=ref("t")), obj(union=arr(ref("t"), 2, 2))]}
    ),
    "nested three": nested(3),
    "nested eight": nested(8),
    "matrix of numbers": arr(arr(NUMBER, 1, 3), 1, 3),
    "cube of bits": arr(arr(arr(enum(0, 1), 1, 2), 1, 2), 1, 2),
    "reference to a property": obj(start=text(format="date"), end={"$ref": "#/properties/start"}),
    "reference to an item": {
        "anyOf": [
            {"type": "array", "items": [INT, enum("a", "b")], "additionalItems": False},
            {"$ref": "#/anyOf/0/items/1"},
        ]
    },
    "escaped names": {
        "$defs": {"a/b": INT, "c~d": TEXT, "e f": NULL},
        **obj(x={"$ref": "#/$defs/a~1b"}, y={"$ref": "#/$defs/c~0d"}, z={"$ref": "#/$defs/e%20f"}),
    },
    "draft 7 definitions": {
        "definitions": {"id": whole(1)},
        **obj(id={"$ref": "#/definitions/id"}, parent={"anyOf": [{"$ref": "#/definitions/id"}, NULL]}),
    },
    "anchor": {"$defs": {"n": {"$anchor": "name", **text(maxLength=9)}}, **obj(name={"$ref": "#name"})},
    "own address": {
        "$id": "https://schemas.example/thing",
        "$defs": {"n": INT},
        **obj(n={"$ref": "https://schemas.example/thing#/$defs/n"}),
    },
    "shared definitions": defs(obj(a=ref("m"), b=ref("m"), c=arr(ref("m"), 0, 2)), m=obj(v=ref("v")), v=enum(1, 2, 3)),
    "chain of references": defs(ref("a"), a=ref("b"), b=ref("c"), c=obj(x=INT)),
    "unused definitions": defs(obj(a=INT), unused={"not": {}}, other={"if": True}),
    "many optional": obj("", **{f"field_{at}": INT for at in range(60)}),
    "many required": obj(**{f"f{at}": enum(at) for at in range(40)}),
    "long enum": enum(*[f"option number {at}" for at in range(300)]),
    "wide union": {"anyOf": [obj(kind={"const": f"k{at}"}, value=INT) for at in range(40)]},
    "tuple of tuples": {
        "type": "array",
        "prefixItems": [{"type": "array", "prefixItems": [INT, TEXT], "items": False, "minItems": 2}, NULL],
        "items": False,
        "minItems": 1,
    },
}
