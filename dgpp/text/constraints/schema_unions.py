"""Questions about schemas: can no value fit both, does any value fit, and how many ways on are there at once?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgpp.text.constraints.keywords import ALL_TYPES, ENFORCED
from dgpp.text.constraints.schema_refs import References
from dgpp.text.constraints.schema_report import Place

_DEPTH = 8
_QUESTIONS = 50_000
_ROUNDS = 100


class Disjoint:
    """Shows that alternatives exclude each other, so that `oneOf` is the same as `anyOf`."""

    def __init__(self, references: References, at: Place) -> None:
        self._references = references
        self._at = at
        self._questions = 0

    def certain(self, one: Any, other: Any, depth: int = _DEPTH) -> bool:
        """Whether it is certain that no value fits both schemas, which are as the request spells them.

        After many questions about one schema nothing is certain any more.
        """
        self._questions += 1
        if self._questions > _QUESTIONS:
            return False
        one, other = self._resolved(one), self._resolved(other)
        if one is False or other is False:
            return True
        if not depth or not isinstance(one, dict) or not isinstance(other, dict):
            return False
        for mine, theirs in ((one, other), (other, one)):
            if any(self.certain(part, theirs, depth - 1) for part in _list(mine, "allOf")):
                return True
            for key in ("anyOf", "oneOf"):
                options = _list(mine, key)
                if options and all(self.certain(option, theirs, depth - 1) for option in options):
                    return True
        if not _types(one) & _types(other):
            return True
        values, others = _values(one), _values(other)
        if values is not None and others is not None:
            return not any(_same(a, b) for a in values for b in others)
        return self._by_property(one, other, depth) or _apart(one, other)

    def _by_property(self, one: Mapping[str, Any], other: Mapping[str, Any], depth: int) -> bool:
        """Both allow only objects, and one of the required properties cannot fit both."""
        if _types(one) & _types(other) != {"object"}:
            return False
        names = [name for node in (one, other) for name in _list(node, "required") if isinstance(name, str)]
        return any(self.certain(_property(one, name), _property(other, name), depth - 1) for name in names)

    def _resolved(self, node: Any) -> Any:
        for _ in range(_DEPTH):
            if not isinstance(node, dict) or set(node) & ENFORCED != {"$ref"}:
                break
            _, node = self._references.find(node["$ref"], self._at)
        return node


def _list(node: Mapping[str, Any], key: str) -> list[Any]:
    value = node.get(key)
    return value if isinstance(value, list) else []


def _types(node: Mapping[str, Any]) -> frozenset[str]:
    """The types that a value may have; what is not said is allowed."""
    types = node.get("type", ALL_TYPES)
    named = {types} if isinstance(types, str) else {name for name in types if isinstance(name, str)}
    result = frozenset("number" if name == "integer" else name for name in named)
    values = _values(node)
    return result if values is None else result & {_type(value) for value in values}


def _values(node: Mapping[str, Any]) -> list[Any] | None:
    if "const" in node:
        return [node["const"]]
    return node["enum"] if isinstance(node.get("enum"), list) else None


def _type(value: Any) -> str:
    names = {type(None): "null", bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def _same(one: Any, other: Any) -> bool:
    """Equality of JSON values: 1 is 1.0 and not true."""
    if _type(one) != _type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)


def _property(node: Mapping[str, Any], name: str) -> Any:
    """The schema that a property of that name has to fit at least."""
    properties = node.get("properties")
    if isinstance(properties, dict) and name in properties:
        return properties[name]
    return True if node.get("patternProperties") else node.get("additionalProperties", True)


def _apart(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Bounds or sizes that do not meet, where only one type is possible."""
    pairs = {"number": ("minimum", "maximum"), "string": ("minLength", "maxLength"), "array": ("minItems", "maxItems")}
    common = _types(one) & _types(other)
    if len(common) != 1 or (keys := pairs.get(next(iter(common)))) is None:
        return False
    low, high = keys
    return any(
        _is_number(mine.get(low)) and _is_number(theirs.get(high)) and mine[low] > theirs[high]
        for mine, theirs in ((one, other), (other, one))
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def productive(schemas: Mapping[str, Any]) -> set[str]:
    """Those of the named schemas (rewritten ones, whose references are "#/$defs/NAME") that some finite value fits,
    as far as recursion decides it."""
    found: set[str] = set()
    for _ in range(_ROUNDS):
        before = len(found)
        for name, node in reversed(list(schemas.items())):  # what is referred to comes later
            if name not in found and _fits(node, found):
                found.add(name)
        if len(found) == before:
            break
    return found


def _fits(node: Any, found: set[str]) -> bool:
    if not isinstance(node, dict):
        return node is not False
    if "$ref" in node and node["$ref"].removeprefix("#/$defs/") not in found:
        return False
    if not all(_fits(part, found) for part in _list(node, "allOf")):
        return False
    if "anyOf" in node and not any(_fits(option, found) for option in node["anyOf"]):
        return False
    types = node.get("type", ALL_TYPES)
    types = {types} if isinstance(types, str) else set(types)
    if types - {"object", "array"}:
        return True
    return ("object" in types and _object_fits(node, found)) or ("array" in types and _array_fits(node, found))


def _object_fits(node: Mapping[str, Any], found: set[str]) -> bool:
    properties = node.get("properties", {})
    other = node.get("additionalProperties", True)
    return all(
        _fits(properties.get(name, other), found)
        for name in node.get("required", ())
        if not node.get("patternProperties") or name in properties
    )


def _array_fits(node: Mapping[str, Any], found: set[str]) -> bool:
    least = node.get("minItems", 0)
    prefix = node.get("prefixItems", [])[:least]
    return all(_fits(item, found) for item in prefix) and (
        least <= len(prefix) or _fits(node.get("items", True), found)
    )


def width(node: Any) -> int:
    """About how many items the library's parser has in a row where a value of a (rewritten) schema begins, at the
    widest place within it. Long rows are slow, and too long ones an error in the middle of an answer."""
    if not isinstance(node, dict):
        return 1
    properties = node.get("properties", {})
    optional = len(properties) - len(set(properties) & set(node.get("required", ())))
    here = 1 + 4 * optional + sum(width(option) for option in node.get("anyOf", ()))
    here += sum(width(part) for part in node.get("allOf", ()))
    inner = [*properties.values(), *node.get("patternProperties", {}).values(), *node.get("prefixItems", ())]
    inner += [node[key] for key in ("items", "additionalProperties") if key in node]
    return max([here, *map(width, inner)])
