"""Random schemas: what is accepted is enforced, whatever stands beside what (case J8)."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from dgpp.text.constraints import GrammarError
from dgpp.text.constraints.formats import STRING_FORMATS
from tests.text.constraints.support import check, samples

PATTERNS = ["^a", r"\d", "^[A-Z]{2,4}$", r"^\S+$", "^(foo|ba?r)$", r"^[^\d]+$", r"^\W$", "^[a-c]*$"]
MEMBERS = [1, 2.5, "a", "b", None, True, [1, 2], {"a": 1}, -3, 'é"\n', 0.1]
KEYS = "abcd"


class Schemas:
    """Draws schemas."""

    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)
        self._chance = self._source.random

    def document(self) -> dict[str, Any]:
        """A schema, sometimes with a definition that is used."""
        schema = self.schema(3)
        if self._chance() < 0.3:
            properties = {"p": {"$ref": "#/$defs/t"}, "q": schema}
            return {"$defs": {"t": self.schema(1)}, "type": "object", "properties": properties, "required": ["p"]}
        return schema if isinstance(schema, dict) else {}

    def schema(self, depth: int) -> Any:
        if depth == 0 or self._chance() < 0.25:
            return self._source.choice([self._text, self._text, self._number, self._number, self._other])()
        return self._source.choice([self._object, self._object, self._array, self._map, self._union])(depth - 1)

    def _text(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string"}
        low = self._source.randrange(4)
        options = {
            "minLength": low,
            "maxLength": low + self._source.randrange(5),
            "pattern": self._source.choice(PATTERNS),
            "format": self._source.choice([*STRING_FORMATS]),
        }
        return schema | {key: value for key, value in options.items() if self._chance() < 0.3}

    def _number(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": self._source.choice(["integer", "number"])}
        low = self._source.choice([0, -5, 3, -1.5, 0.25, 100, -1000, 2.75])
        if self._chance() < 0.5:
            schema[self._source.choice(["minimum", "exclusiveMinimum"])] = low
        if self._chance() < 0.5:
            schema[self._source.choice(["maximum", "exclusiveMaximum"])] = low + self._source.choice(
                [0, 1, 7, 0.5, 2.25]
            )
        if self._chance() < 0.25:
            schema["multipleOf"] = self._source.choice([1, 2, 3, 5, 7, 0.5, 0.25, 0.1, 2.5])
        return schema

    def _other(self) -> Any:
        some = {"enum": self._source.sample(MEMBERS, self._source.randrange(1, 4))}
        return self._source.choice(
            [True, {}, some, some, {"const": [1, {"b": 2}]}, {"type": ["string", "null"], "maxLength": 3}]
        )

    def _object(self, depth: int) -> dict[str, Any]:
        names = self._source.sample(KEYS, self._source.randrange(1, 4))
        schema: dict[str, Any] = {"type": "object", "properties": {name: self.schema(depth) for name in names}}
        if self._chance() < 0.7:
            schema["required"] = [name for name in [*names, "z"] if self._chance() < 0.4]
        rest = self._chance()
        if rest < 0.65:
            schema["additionalProperties"] = False if rest < 0.5 else self.schema(depth)
        if self._chance() < 0.15:
            schema["patternProperties"] = {self._source.choice(["^x", "^a", "y$"]): self.schema(depth)}
        if self._chance() < 0.12:
            schema[self._source.choice(["minProperties", "maxProperties"])] = self._source.randrange(1, 5)
        return schema

    def _array(self, depth: int) -> dict[str, Any]:
        low = self._source.randrange(3)
        options = {
            "items": self.schema(depth),
            "prefixItems": [self.schema(depth) for _ in range(self._source.randrange(1, 3))],
            "minItems": low,
            "maxItems": low + self._source.randrange(3),
        }
        return {"type": "array"} | {key: value for key, value in options.items() if self._chance() < 0.6}

    def _map(self, depth: int) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": self.schema(depth)}

    def _union(self, depth: int) -> dict[str, Any]:
        key = self._source.choice(["anyOf", "oneOf", "allOf"])
        beside = self.schema(1) if self._chance() < 0.3 else {}
        options = [self.schema(depth) for _ in range(self._source.randrange(1, 4))]
        return {**(beside if isinstance(beside, dict) else {}), key: options}


def enforced(seed: int, count: int, answers: int) -> int:
    """How many of `count` random schemas were accepted; checks answers to each of them."""
    schemas = Schemas(seed)
    accepted = 0
    for _ in range(count):
        schema = schemas.document()
        with contextlib.suppress(GrammarError):  # refused: what the corpus is about
            drawn = samples(schema, answers)
            accepted += 1
            for answer in drawn:
                check(schema, answer)
    return accepted


@pytest.mark.parametrize("seed", range(4))
def test_J8_random_schemas_are_enforced_or_refused(seed: int) -> None:
    assert enforced(seed, 40, 3) > 15


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 112))
def test_J8_many_random_schemas_are_enforced_or_refused(seed: int) -> None:
    assert enforced(seed, 100, 6) > 40
