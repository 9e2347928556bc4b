"""The keywords of JSON schemas, by what becomes of them (spec/api.md §8.1). What is in none of these is refused."""

from __future__ import annotations

from typing import Any

ALL_TYPES = frozenset({"null", "boolean", "number", "string", "array", "object"})

OF_TYPE: dict[str, tuple[str, ...]] = {
    "object": (
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "minProperties",
        "maxProperties",
    ),
    "array": ("items", "prefixItems", "additionalItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""Keywords that restrict values of one type; a schema without a type that has some of them means their types."""

GENERAL = frozenset({"type", "enum", "const", "format", "$ref", "allOf", "anyOf", "oneOf"})
ENFORCED = GENERAL.union(*OF_TYPE.values())

IGNORED = frozenset(
    {
        "$anchor",
        "$comment",
        "$defs",
        "$id",
        "$schema",
        "default",
        "definitions",
        "deprecated",
        "description",
        "discriminator",
        "example",
        "examples",
        "externalDocs",
        "id",
        "readOnly",
        "title",
        "writeOnly",
        "xml",
    }
)
"""Keywords that restrict nothing, with those of OpenAPI; so do all that begin with "x-"."""

WITHOUT_EFFECT: dict[str, Any] = {"uniqueItems": False, "minContains": 0, "nullable": False}
"""Keywords that are not supported, with the value at which they restrict nothing."""

NARROWING = frozenset(
    {
        "contains",
        "contentEncoding",
        "contentMediaType",
        "maxContains",
        "maxProperties",
        "minContains",
        "minProperties",
        "uniqueItems",
    }
)
"""Keywords without which a schema only allows more."""

DEFINITIONS = frozenset({"$defs", "definitions"})
