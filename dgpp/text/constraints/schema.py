"""JSON schemas: what is enforced, what is ignored, and what is refused by name (spec/api.md §8.1, case J8).

A schema is rewritten before the library sees it: references become plain local ones, formats and patterns its
syntax, `oneOf` the `anyOf` that it is shown to equal, and keywords that the library would enforce only nearly are
refused. Beyond the subset of the contract, allOf, disjoint oneOf, prefixItems, patternProperties and lengths are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from dgpp.text.constraints.keywords import ALL_TYPES, ENFORCED, GENERAL, IGNORED, OF_TYPE, WITHOUT_EFFECT
from dgpp.text.constraints.limits import DEFAULT_LIMITS, Limits
from dgpp.text.constraints.schema_checked import CheckedSchema, as_text
from dgpp.text.constraints.schema_leaves import literal, strings
from dgpp.text.constraints.schema_numbers import numbers, spelled_short
from dgpp.text.constraints.schema_refs import References
from dgpp.text.constraints.schema_report import Place
from dgpp.text.constraints.schema_shapes import arrays, objects
from dgpp.text.constraints.schema_unions import Disjoint, productive, width

_OPTIONS = 200  # of one oneOf
_DEFINITIONS = 1000


def checked_schema(
    schema: Mapping[str, Any] | bool,
    at: str,
    limits: Limits = DEFAULT_LIMITS,
    *,
    root: Mapping[str, Any] | None = None,
    steps: tuple[str | int, ...] = (),
) -> CheckedSchema:
    """The rewritten form of `schema`, which is at the path `at` of the request, or `steps` further within the schema
    `root` that is there. References are those of `root` (by default `schema` itself).

    Raises GrammarError with code "unsupported_schema", naming the keyword at fault.
    """
    place = Place(at)
    within: Any = schema if root is None else root
    if _depth(within) > limits.schema_depth:
        raise place.refused(f"is nested more than {limits.schema_depth} deep; use $ref and $defs")
    if len(as_text(within).encode("utf-8", "replace")) > limits.schema_bytes:
        raise place.refused(f"is larger than {limits.schema_bytes} bytes; leave out what the answer does not need")
    return _Rewriter(within, place, limits).run(schema, Place(at, steps))


class _Rewriter:
    def __init__(self, root: Any, at: Place, limits: Limits) -> None:
        self._at = at
        self._limits = limits
        self._references = References(root, at)
        self._disjoint = Disjoint(self._references, at)
        self._names: dict[str, str] = {}  # of referenced schemas, by pointer
        self._first: dict[str, Place] = {}  # where a name is referred to first
        self._pending: deque[tuple[str, Place, Any]] = deque()
        self._merged: list[tuple[str, Place]] = []  # references that are intersected with something
        self._parts: list[tuple[Place, str]] = []
        self._nodes = 0
        self.one_spelling = False

    def run(self, schema: Any, at: Place) -> CheckedSchema:
        main = self.node(schema, at)
        definitions: dict[str, Any] = {}
        while self._pending:
            name, place, target = self._pending.popleft()
            definitions[name] = self.node(target, place)
        self._check_recursion(main, definitions)
        text: dict[str, Any] = dict(main) if isinstance(main, dict) else {"anyOf": [main]}
        if definitions:
            text["$defs"] = definitions
        text["x-guidance"] = {"whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,16}"}
        if self.one_spelling:
            text["x-guidance"]["json_allowed_escapes"] = 'nrbtf\\"'
        return CheckedSchema(as_text(text), at, tuple(self._parts))

    def node(self, node: Any, at: Place, merged: bool = False) -> dict[str, Any] | bool:
        """The rewritten form of one schema; `merged` says that it is intersected with another."""
        self._nodes += 1
        if self._nodes > self._limits.schema_nodes:
            raise self._at.refused(f"has more than {self._limits.schema_nodes} parts; leave out what is not needed")
        if isinstance(node, bool):
            return node
        if not isinstance(node, Mapping):
            raise at.refused("must be a schema: an object, true or false")
        self._check_keywords(node, at)
        types = self._types(node, at)
        result: dict[str, Any] = {}
        if types is not None:
            result["type"] = sorted(types) if len(types) != 1 else next(iter(types))
        kinds = set(ALL_TYPES) if types is None else types
        numeric = self._leaves(node, kinds, result, at)
        result |= objects(self, node, at) if "object" in kinds else {}
        result |= arrays(self, node, at) if "array" in kinds else {}
        self._literals(node, result, at)
        self._applicators(node, result, at, merged)
        short = (
            spelled_short(numeric)
            if types and "number" in types and not GENERAL.intersection(result) - {"type"}
            else []
        )
        return _beside(result, numeric, types - {"number"}, short) if types and short else result

    def part(self, at: Place, schema: Mapping[str, Any]) -> None:
        """Notes a rewritten schema that can be compiled by itself, and what it stands for."""
        self._parts.append((at, as_text(schema)))

    def _check_keywords(self, node: Mapping[str, Any], at: Place) -> None:
        for key, value in node.items():
            if key in IGNORED or key in ENFORCED or (key.startswith("x-") and not key.startswith("x-dgpp")):
                continue
            if not (
                key in WITHOUT_EFFECT and type(value) is type(WITHOUT_EFFECT[key]) and value == WITHOUT_EFFECT[key]
            ):
                raise (at / key).refused("is a keyword that cannot be enforced; leave it out, or do without strict")

    def _types(self, node: Mapping[str, Any], at: Place) -> set[str] | None:
        """The types that are allowed; None when any is. Keywords of one type, without a type, mean that type."""
        named = node.get("type")
        if named is None and "type" not in node:
            if "enum" in node or "const" in node:
                return None
            return {kind for kind, keys in OF_TYPE.items() if any(key in node for key in keys)} or (
                {"string"} if "format" in node else None
            )
        names = [named] if isinstance(named, str) else named
        known = ALL_TYPES | {"integer"}
        if not isinstance(names, list) or not names or not all(isinstance(n, str) and n in known for n in names):
            raise (at / "type").refused("must be one or several of " + ", ".join(sorted(known)))
        return set(names) - ({"integer"} if "number" in names else set())

    def _leaves(self, node: Mapping[str, Any], kinds: set[str], result: dict[str, Any], at: Place) -> dict[str, Any]:
        """Puts the keywords of numbers and strings into `result`; returns those of numbers."""
        numeric = numbers(node, kinds, at) if kinds & {"number", "integer"} else {}
        textual = strings(node, kinds, at) if "string" in kinds else {}
        for name, found, type in (("minimum", numeric, "number"), ("pattern", textual, "string")):
            if found:
                key = next((key for key in node if key in (*OF_TYPE[type], "format")), name)
                kind = "integer" if type == "number" and "number" not in kinds else type
                self.part(at / key, {"type": kind} | found)
        result |= numeric | textual
        return numeric

    def _literals(self, node: Mapping[str, Any], result: dict[str, Any], at: Place) -> None:
        if "const" in node:
            result["const"] = literal(node["const"], at / "const")
        if "enum" in node:
            if not isinstance(node["enum"], list) or not node["enum"]:
                raise (at / "enum").refused("must be a non-empty array")
            result["enum"] = [literal(value, at / "enum" / index) for index, value in enumerate(node["enum"])]
        for key in ("const", "enum"):
            if key in result:
                own = {"type", key, *OF_TYPE["number"], *OF_TYPE["string"]} & set(result)
                self.part(at / key, {name: result[name] for name in sorted(own)})

    def _applicators(self, node: Mapping[str, Any], result: dict[str, Any], at: Place, merged: bool) -> None:
        groups = [key for key in ("$ref", "allOf", "anyOf", "oneOf") if key in node]
        if not groups:
            return
        together = merged or bool(result) or len(groups) > 1
        parts: list[Any] = result.pop("allOf", [])
        if "allOf" in node:
            options = self._options(node, "allOf", at)
            inner = together or len(options) > 1
            parts += [self.node(part, at / "allOf" / index, inner) for index, part in enumerate(options)]
        for key in ("anyOf", "oneOf"):
            if key in node:
                options = self._options(node, key, at)
                if key == "oneOf":
                    self._check_disjoint(options, at / "oneOf")
                choice = [self.node(option, at / key / index, together) for index, option in enumerate(options)]
                parts.append({"anyOf": choice})
        if "$ref" in node:
            parts.append({"$ref": self._reference(node["$ref"], at / "$ref", together)})
        if result or len(parts) > 1:
            result["allOf"] = parts
        else:
            result |= parts[0] if isinstance(parts[0], dict) else {"anyOf": parts}

    def _options(self, node: Mapping[str, Any], key: str, at: Place) -> list[Any]:
        if not isinstance(node[key], list) or not node[key]:
            raise (at / key).refused("must be a non-empty array")
        return list(node[key])

    def _check_disjoint(self, options: list[Any], at: Place) -> None:
        if len(options) > _OPTIONS:
            raise at.refused(f"has more than {_OPTIONS} alternatives; use anyOf")
        for later, option in enumerate(options):
            for earlier in range(later):
                if not self._disjoint.certain(options[earlier], option):
                    raise at.refused(
                        f"has alternatives {earlier} and {later}, that one value might fit both; use anyOf or give "
                        "them different types or a required property with different const values"
                    )

    def _reference(self, reference: Any, at: Place, merged: bool) -> str:
        place, target = self._references.find(reference, at)
        if place.pointer not in self._names:
            if len(self._names) >= _DEFINITIONS:
                raise at.refused(f"is to more than {_DEFINITIONS} different places; use fewer definitions")
            name = self._names[place.pointer] = f"d{len(self._names)}"
            self._first[name] = at
            self._pending.append((name, place, target))
        name = self._names[place.pointer]
        if merged:
            self._merged.append((name, at))
        return f"#/$defs/{name}"

    def _check_recursion(self, main: Any, definitions: Mapping[str, Any]) -> None:
        finite = productive({"": main, **definitions})
        for name in definitions:
            if name not in finite:
                raise self._first[name].refused("leads back to itself without an end: no finite value fits it")
        if "" not in finite:
            raise self._at.refused("fits no finite value")
        if max(map(width, (main, *definitions.values()))) > self._limits.row_items:
            raise self._at.refused(
                "has too many alternatives or optional properties in one place; require some of them"
            )
        uses = {name: _names_in(node) for name, node in definitions.items()}
        for name, at in self._merged:
            seen: set[str] = set()
            pending = set(uses[name])
            while pending:
                seen |= pending
                pending = {next_ for one in pending for next_ in uses[one]} - seen
            if name in seen:
                raise at.refused("is recursive and has other keywords beside it; move them into what it points at")


def _beside(
    result: Mapping[str, Any], numeric: Mapping[str, Any], rest: set[str], short: list[float]
) -> dict[str, Any]:
    """The schema with the numbers `short` allowed beside its interval of numbers."""
    options: list[dict[str, Any]] = [{"type": "number", **numeric}, *({"const": value} for value in short)]
    if rest:
        other = {key: value for key, value in result.items() if key not in numeric}
        options.append({**other, "type": sorted(rest)})
    return {"anyOf": options}


def _names_in(node: Any) -> set[str]:
    found: set[str] = set()
    pending = [node]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            if isinstance(reference := node.get("$ref"), str):
                found.add(reference.removeprefix("#/$defs/"))
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return found


def _depth(value: Any) -> int:
    """How deeply arrays and objects are nested; any depth can be measured."""
    deepest, level = 0, [value]
    while level:
        deepest += 1
        level = [
            item
            for node in level
            for item in (node.values() if isinstance(node, dict) else node)
            if isinstance(item, dict | list)
        ]
    return deepest
