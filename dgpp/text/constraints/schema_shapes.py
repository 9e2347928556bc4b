"""Keywords of objects and arrays, checked and put into what the library enforces exactly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from dgpp.text.constraints.schema_leaves import ordered, pattern
from dgpp.text.constraints.schema_report import Place

ITEMS = 4096  # the library unrolls bounded arrays


class Rewriter(Protocol):
    """Rewrites the schemas within a schema. `one_spelling` is set where keys must have one spelling each: the library
    tells declared names from keys that fit `additionalProperties` by their spelling."""

    one_spelling: bool

    def node(self, node: Any, at: Place, merged: bool = False) -> dict[str, Any] | bool: ...

    def part(self, at: Place, schema: Mapping[str, Any]) -> None: ...


def objects(rewriter: Rewriter, node: Mapping[str, Any], at: Place) -> dict[str, Any]:
    """properties, patternProperties, additionalProperties, required, minProperties and maxProperties."""
    properties = _schemas(rewriter, node, "properties", at)
    by_pattern = {
        pattern(key, at / "patternProperties" / key): value
        for key, value in _schemas(rewriter, node, "patternProperties", at).items()
    }
    required = _required(node, at)
    result: dict[str, Any] = {}
    if properties:
        result["properties"] = properties
    if required:
        result["required"] = required
    other = node.get("additionalProperties", True)
    if other is False:
        result["additionalProperties"] = False
    elif other is True or other == {}:
        if by_pattern:
            rewriter.one_spelling = True
        elif properties:
            by_pattern = {"": True}  # the same as being open, but keys are compared by what they say
            result["additionalProperties"] = False
    else:
        result["additionalProperties"] = rewriter.node(other, at / "additionalProperties")
        rewriter.one_spelling = True
    if len(by_pattern) > 1:
        rewriter.part(at / "patternProperties", {"patternProperties": dict.fromkeys(by_pattern, True)})
    if by_pattern:
        result["patternProperties"] = by_pattern
    result |= _sizes(node, result, at)
    return result


def _schemas(rewriter: Rewriter, node: Mapping[str, Any], key: str, at: Place) -> dict[str, Any]:
    value = node.get(key, {})
    if not isinstance(value, Mapping):
        raise (at / key).refused("must be an object of schemas")
    return {name: rewriter.node(schema, at / key / name) for name, schema in value.items()}


def _required(node: Mapping[str, Any], at: Place) -> list[str]:
    names = node.get("required", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise (at / "required").refused("must be an array of property names")
    return list(dict.fromkeys(names))


def _sizes(node: Mapping[str, Any], result: Mapping[str, Any], at: Place) -> dict[str, Any]:
    """minProperties and maxProperties, where what they ask beyond the required properties can be counted.

    Keys that are not declared might be repeated, so at most one of them can be asked for.
    """
    least, most = ordered(node, "minProperties", "maxProperties", at)
    required = set(result.get("required", ()))
    optional = [name for name in result.get("properties", {}) if name not in required]
    closed = result.get("additionalProperties") is False and not result.get("patternProperties")
    if most is not None and most < len(required):
        raise (at / "maxProperties").refused("is less than the number of required properties")
    more, room = max(0, least - len(required)), None if most is None else most - len(required)
    if closed and room is not None and room >= len(optional):
        room = None  # cannot be exceeded
    if not more and room is None:
        return {}
    if more > 1:
        raise (at / "minProperties").refused(
            "asks for more than one property beyond the required ones, which is not supported; list them in required"
        )
    if optional and not (closed and room in (None, 1)):
        key = "maxProperties" if room is not None else "minProperties"
        raise (at / key).refused("beside optional properties is not supported; make them required, or leave it out")
    counts = {"minProperties": least if more else None, "maxProperties": None if room is None else most}
    return {key: value for key, value in counts.items() if value is not None}


def arrays(rewriter: Rewriter, node: Mapping[str, Any], at: Place) -> dict[str, Any]:
    """items, prefixItems, minItems and maxItems. An array of `items` is the prefixItems of drafts before 2020-12."""
    least, most = ordered(node, "minItems", "maxItems", at)
    for key, value in (("maxItems", most), ("minItems", least)):
        if value is not None and value > ITEMS:
            raise (at / key).refused(f"is more than {ITEMS}, which is too costly to enforce; lower it or leave it out")
    items_key, prefix_key = "items", "prefixItems"
    if isinstance(node.get("items"), list):
        if "prefixItems" in node:
            raise (at / "items").refused("must be a schema beside prefixItems")
        items_key, prefix_key = "additionalItems", "items"
    result: dict[str, Any] = {}
    prefix = node.get(prefix_key, [])
    if not isinstance(prefix, list):
        raise (at / prefix_key).refused("must be an array of schemas")
    if prefix:
        result["prefixItems"] = [rewriter.node(item, at / prefix_key / index) for index, item in enumerate(prefix)]
    if items_key in node:
        result["items"] = rewriter.node(node[items_key], at / items_key)
    if least:
        result["minItems"] = least
    if most is not None:
        result["maxItems"] = most
    return result
