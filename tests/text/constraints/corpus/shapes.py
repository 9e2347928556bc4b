"""Short spellings for the shapes that schemas are made of."""

from __future__ import annotations

from typing import Any

TEXT: dict[str, Any] = {"type": "string"}
INT: dict[str, Any] = {"type": "integer"}
NUMBER: dict[str, Any] = {"type": "number"}
BOOL: dict[str, Any] = {"type": "boolean"}
NULL: dict[str, Any] = {"type": "null"}
UUID: dict[str, Any] = {"type": "string", "format": "uuid"}
WHEN: dict[str, Any] = {"type": "string", "format": "date-time"}
DAY: dict[str, Any] = {"type": "string", "format": "date"}
EMAIL: dict[str, Any] = {"type": "string", "format": "email"}
URI: dict[str, Any] = {"type": "string", "format": "uri"}


def obj(required: str | None = None, /, *, rest: Any = False, **properties: Any) -> dict[str, Any]:
    """An object of these properties; all are required unless the names of those that are, are given. `rest` is what
    other properties must fit; None leaves the keyword out."""
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    names = list(properties) if required is None else required.split()
    if names:
        schema["required"] = names
    return schema if rest is None else schema | {"additionalProperties": rest}


def arr(items: Any, least: int | None = None, most: int | None = None) -> dict[str, Any]:
    """An array."""
    bounds = {"minItems": least, "maxItems": most}
    return {"type": "array", "items": items, **{key: value for key, value in bounds.items() if value is not None}}


def enum(*values: Any) -> dict[str, Any]:
    """One of these values."""
    return {"enum": list(values)}


def ref(name: str) -> dict[str, Any]:
    """What `$defs` has under that name."""
    return {"$ref": f"#/$defs/{name}"}


def defs(schema: dict[str, Any], **definitions: Any) -> dict[str, Any]:
    """A schema with definitions."""
    return {"$defs": definitions, **schema}


def text(**keywords: Any) -> dict[str, Any]:
    """A string."""
    return {"type": "string", **keywords}


def num(low: float | None = None, high: float | None = None, **keywords: Any) -> dict[str, Any]:
    """A number in an interval."""
    bounds = {"minimum": low, "maximum": high}
    return {"type": "number", **{key: value for key, value in bounds.items() if value is not None}, **keywords}


def whole(low: int | None = None, high: int | None = None, **keywords: Any) -> dict[str, Any]:
    """An integer in an interval."""
    return num(low, high, **keywords) | {"type": "integer"}


def maybe(schema: dict[str, Any]) -> dict[str, Any]:
    """This or null, as clients' libraries spell it."""
    return {"anyOf": [schema, NULL]}
