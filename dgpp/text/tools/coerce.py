"""The JSON type that a declared schema gives to an argument, and the argument's text as JSON of that type.

Formats that write values as bare text leave it to the schema whether `10` is a number or a string.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dgpp.text.tools.json_text import escaped, normalised
from dgpp.text.unicode_check import surrogate_path

_ALL = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_PYTHON_WORDS = {"True": ("true", "boolean"), "False": ("false", "boolean"), "None": ("null", "null")}
_PYTHON_LIMIT = 1 << 16  # characters of a Python literal that are read
_DEPTH = 16  # references and combinations that are followed
_HINTS = (
    (("properties", "required", "additionalProperties", "patternProperties"), "object"),
    (("items", "prefixItems", "minItems", "maxItems", "uniqueItems"), "array"),
    (("pattern", "format", "minLength", "maxLength"), "string"),
)


@dataclass(frozen=True)
class Typed:
    """What a schema says of a value's type. `types` is None where it says nothing, `texts` are the strings among the
    values that it lists."""

    types: frozenset[str] | None
    texts: frozenset[str] = frozenset()

    @property
    def is_text(self) -> bool:
        """Whether every value is a string, so that its text is never read as JSON."""
        return self.types == {"string"}

    def json(self, text: str) -> str:
        """`text` as JSON, in the spacing of `json.dumps`: of a declared type where it can be read as one.

        A string stays a string even if it looks like a number. Python's spelling is read where a boolean, null, array
        or object is declared. What fits no declared type is a string.
        """
        string = f'"{escaped(text)}"'
        if self.is_text or text in self.texts:
            return string
        value = normalised(text) or (None if self.types is None else _python(text, self.types))
        if value is None or (self.types is not None and "string" in self.types and not self._allows(value[1])):
            return string
        return value[0]

    def _allows(self, kind: str) -> bool:
        return kind != "string" and (
            kind in (self.types or ()) or (kind == "integer" and "number" in (self.types or ()))
        )


def typed(schema: Any, root: Mapping[str, Any]) -> Typed:
    """The types that `schema`, a part of the schema `root`, allows."""
    types = _types(schema, root, _DEPTH)
    schema = resolve(schema, root)
    values = schema.get("enum", [schema.get("const")]) if isinstance(schema, Mapping) else ()
    texts = [value for value in values if isinstance(value, str)] if isinstance(values, list) else ()
    return Typed(None if types == _ALL else types, frozenset(texts))


def resolve(schema: Any, root: Mapping[str, Any], depth: int = _DEPTH) -> Any:
    """`schema`, or what its local `$ref` leads to; None where that leads nowhere."""
    while isinstance(schema, Mapping) and isinstance(ref := schema.get("$ref"), str):
        depth -= 1
        if depth < 0 or not ref.startswith("#"):
            return None
        schema = root
        for step in ref[1:].split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(schema, list) and step.isdecimal() and int(step) < len(schema):
                schema = schema[int(step)]
            elif isinstance(schema, Mapping) and step in schema:
                schema = schema[step]
            else:
                return None
    return schema


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> frozenset[str]:
    schema = resolve(schema, root)
    if not isinstance(schema, Mapping) or depth < 0:
        return _ALL
    found = _ALL
    match schema.get("type"):
        case str(name):
            found &= {name, "integer"} if name == "number" else {name}
        case list(names):
            found &= {name for name in names if isinstance(name, str)} | ({"integer"} if "number" in names else set())
    if schema.get("nullable") is True and found != _ALL:
        found |= {"null"}
    if isinstance(values := schema.get("enum", [schema["const"]] if "const" in schema else None), list):
        found &= {_type_of(value) for value in values}
    for keyword in ("anyOf", "oneOf"):
        if isinstance(parts := schema.get(keyword), list) and parts:
            found &= frozenset().union(*(_types(part, root, depth - 1) for part in parts))
    if isinstance(parts := schema.get("allOf"), list):
        for part in parts:
            found &= _types(part, root, depth - 1)
    if found == _ALL:
        hints = {name for keywords, name in _HINTS if any(keyword in schema for keyword in keywords)}
        found = frozenset(hints) if len(hints) == 1 else found
    return found or _ALL


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _python(text: str, types: frozenset[str]) -> tuple[str, str] | None:
    """A Python literal as JSON, and its type, where it is of one of `types`."""
    text = text.strip()
    if text in _PYTHON_WORDS:
        value, kind = _PYTHON_WORDS[text]
        return (value, kind) if kind in types else None
    if text[:1] not in ("[", "{") or len(text) > _PYTHON_LIMIT:
        return None
    try:
        literal = ast.literal_eval(text)
        kind = _type_of(literal)
        if not isinstance(literal, list | dict) or kind not in types or not _has_text_keys(literal):
            return None
        if surrogate_path(literal, "") is not None:
            return None
        return json.dumps(literal, ensure_ascii=False, allow_nan=False), kind
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _has_text_keys(value: Any) -> bool:
    """Whether all keys of all dictionaries are strings: others would be rewritten."""
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                return False
            pending += value.values()
        elif isinstance(value, list | tuple):
            pending += value
    return True
