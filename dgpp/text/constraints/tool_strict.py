"""What of a strict tool's schema a format of calls that writes each argument as text leaves unenforced (case J8).

Such a format has properties, required keys and values of its own, and a string in it is any text, one of several, or
of a grammar, pattern, format and length. What a schema says beyond that has to be refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dgpp.text.constraints.keywords import ALL_TYPES
from dgpp.text.constraints.schema_refs import References
from dgpp.text.constraints.schema_report import Place

_ROOT = ("patternProperties", "minProperties", "maxProperties", "anyOf", "oneOf", "allOf", "$ref", "enum", "const")
_TEXT = ("pattern", "format", "minLength", "maxLength")


def refuse_unenforced(parameters: Mapping[str, Any], at: str) -> None:
    """Raises GrammarError naming the first such keyword of a checked schema of arguments, which is at the path `at`."""
    for place in _unenforced(parameters, Place(at)):
        raise place.refused("is not enforced where arguments are written as text, as this model does; leave it out")


def _unenforced(parameters: Mapping[str, Any], at: Place) -> Iterator[Place]:
    yield from (at / key for key in _ROOT if key in parameters)
    if isinstance(parameters.get("additionalProperties"), Mapping):
        yield at / "additionalProperties"
    references = References(parameters, at)
    for name, schema in parameters.get("properties", {}).items():
        yield from _of_text(schema, at / "properties" / name, references)


def _of_text(node: Any, at: Place, references: References) -> Iterator[Place]:
    """Keywords that restrict a value which may be a string, and so is written as text."""
    kinds = _kinds(node, at, references)
    if "string" not in kinds:
        return
    for place, part in _parts(node, at, references):
        if "enum" in part or "const" in part:
            continue
        if kinds != {"string"} or isinstance(place.steps[-1], int):  # else it is a terminal of the grammar
            yield from (place / key for key in _TEXT if key in part)
        yield from (place / key for key in ("allOf",) if key in part)
    if kinds - {"string", "null"} and kinds != ALL_TYPES:
        yield at / ("type" if isinstance(node, Mapping) and "type" in node else "anyOf")


def _parts(node: Any, at: Place, references: References) -> Iterator[tuple[Place, Mapping[str, Any]]]:
    """A schema without alternatives, or each of its alternatives."""
    for _ in range(16):
        if not isinstance(node, Mapping) or "$ref" not in node:
            break
        at, node = references.find(node["$ref"], at / "$ref")
    if not isinstance(node, Mapping):
        return
    options = [(key, index, option) for key in ("anyOf", "oneOf") for index, option in enumerate(node.get(key, ()))]
    if not options:
        yield at, node
    for key, index, option in options:
        yield from _parts(option, at / key / index, references)


def _kinds(node: Any, at: Place, references: References) -> frozenset[str]:
    found: set[str] = set()
    for _, part in _parts(node, at, references):
        types = part.get("type", ALL_TYPES)
        found |= {types} if isinstance(types, str) else set(types)
    return frozenset("number" if kind == "integer" else kind for kind in found)
