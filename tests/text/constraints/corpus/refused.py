"""Schemas with a keyword that cannot be enforced, and its place."""

from __future__ import annotations

from typing import Any

from tests.text.constraints.corpus.shapes import BOOL, INT, TEXT, arr, defs, obj, ref, text

SCHEMAS: dict[str, tuple[str, Any]] = {
    "set of tags": ("properties.tags.uniqueItems", obj(tags=arr(TEXT) | {"uniqueItems": True})),
    "contains": ("contains", arr(INT) | {"contains": {"const": 1}}),
    "conditional": (
        "if",
        obj("a", a=BOOL, b=INT) | {"if": {"properties": {"a": {"const": True}}}, "then": {"required": ["b"]}},
    ),
    "negation": ("properties.name.not", obj(name=TEXT | {"not": {"const": "root"}})),
    "dependent": ("dependentRequired", obj("", card=TEXT, address=TEXT) | {"dependentRequired": {"card": ["address"]}}),
    "old dependencies": ("dependencies", obj("", a=TEXT, b=TEXT) | {"dependencies": {"a": ["b"]}}),
    "names of keys": ("propertyNames", {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}}),
    "unevaluated": ("unevaluatedProperties", {"allOf": [obj(rest=None, a=INT)], "unevaluatedProperties": False}),
    "base64": ("properties.data.contentEncoding", obj(data=text(contentEncoding="base64"))),
    "media type": ("contentMediaType", text(contentMediaType="application/json")),
    "lookahead password": ("properties.password.pattern", obj(password=text(pattern=r"^(?=.*\d)(?=.*[a-z]).{8,}$"))),
    "word boundary": ("pattern", text(pattern=r"\bcat\b")),
    "back-reference": ("pattern", text(pattern=r"^(['\"]).*\1$")),
    "case-insensitive": ("pattern", text(pattern="(?i)^yes$")),
    "unknown format": ("properties.when.format", obj(when=text(format="iso-week"))),
    "binary format": ("properties.file.format", obj(file=text(format="binary"))),
    "open api nullable": ("properties.a.nullable", obj(a=TEXT | {"nullable": True})),
    "external reference": ("properties.a.$ref", obj(a={"$ref": "https://json.schemastore.org/package.json"})),
    "relative reference": ("properties.a.$ref", obj(a={"$ref": "common.json#/definitions/name"})),
    "dangling reference": ("items.$ref", arr(ref("missing"))),
    "reference cycle": ("$ref", defs(ref("a"), a=ref("b"), b=ref("a"))),
    "endless object": ("$ref", defs(ref("n"), n=obj(next=ref("n")))),
    "overlapping one of": ("oneOf", {"oneOf": [obj("", rest=None, a=INT), obj("", rest=None, b=INT)]}),
    "one of patterns": ("properties.v.oneOf", obj(v={"oneOf": [text(pattern="^a"), text(pattern="b$")]})),
    "typo": ("properties.a.minimun", obj(a=INT | {"minimun": 3})),
    "dynamic": ("$dynamicRef", {"$dynamicRef": "#meta"}),
    "draft 4 bounds": ("properties.a.exclusiveMinimum", obj(a=INT | {"minimum": 0, "exclusiveMinimum": True})),
    "three properties": ("minProperties", {"type": "object", "additionalProperties": INT, "minProperties": 3}),
    "contradiction": ("properties.a.minimum", obj(a=INT | {"minimum": 5, "maximum": 3})),
    "impossible constant": ("properties.a.const", obj(a=text(const="xyz", maxLength=2))),
}
