"""The fields of a request as data: each knows its name, its JSON Schema and how to read itself from a body.

One declaration serves the parser and the API description, so that the two cannot differ. A reader returns the value or
raises the 400 that names the field. `null` counts as omitted unless a field says otherwise. Booleans are not numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from dgpp.serve.errors import INVALID, INVALID_PARAMETER, ApiError, ErrorKind

INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

Body = Mapping[str, Any]
Schema = dict[str, Any]
T = TypeVar("T")


class Field(Protocol):
    """What every field has."""

    @property
    def name(self) -> str:
        """The key in the body."""

    @property
    def doc(self) -> str:
        """What it does, for the API description."""

    @property
    def schema(self) -> Schema:
        """The JSON Schema of its values."""


def nullable(schema: Schema, null: bool = True) -> Schema:
    """`schema` that also takes null, if `null`."""
    return {"anyOf": [schema, {"type": "null"}]} if null else schema


@dataclass(frozen=True)
class Flag:
    """true or false; with `null` off an explicit null is an error. `prefix` is the path of the object it lies in."""

    name: str
    doc: str
    default: bool = False
    null: bool = True
    prefix: str = ""

    @property
    def schema(self) -> Schema:
        """The JSON Schema of its values."""
        return nullable({"type": "boolean", "default": self.default}, self.null)

    def read(self, body: Body) -> bool:
        """Its value, or the default."""
        value = body.get(self.name, self.default)
        if value is None and self.null:
            return self.default
        if not isinstance(value, bool):
            path = self.prefix + self.name
            raise ApiError(INVALID, f"{path} must be true or false.", path)
        return value


@dataclass(frozen=True)
class Integer:
    """An integer in [low, high]; with `integral` also a number like 8.0, which some clients send."""

    name: str
    doc: str
    low: int
    high: int
    integral: bool = True

    @property
    def schema(self) -> Schema:
        """The JSON Schema of its values."""
        return nullable({"type": "integer", "minimum": self.low, "maximum": self.high})

    def read(self, body: Body) -> int | None:
        """Its value, or None."""
        value = body.get(self.name)
        if value is None:
            return None
        if self.integral and isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not self.low <= value <= self.high:
            raise ApiError(INVALID, f"{self.name} must be an integer between {self.low} and {self.high}.", self.name)
        return value


@dataclass(frozen=True)
class Number:
    """A finite number in [low, high], or in (low, high] with `above`."""

    name: str
    doc: str
    low: float
    high: float
    above: bool = False

    @property
    def schema(self) -> Schema:
        """The JSON Schema of its values."""
        least = "exclusiveMinimum" if self.above else "minimum"
        return nullable({"type": "number", least: self.low, "maximum": self.high})

    def read(self, body: Body) -> float | None:
        """Its value, or None."""
        value = body.get(self.name)
        if value is None:
            return None
        usable = isinstance(value, int | float) and not isinstance(value, bool) and self.low <= value <= self.high
        if not usable or not math.isfinite(value) or (self.above and value <= self.low):
            ends = f"above {self.low:g} and at most" if self.above else f"between {self.low:g} and"
            raise ApiError(INVALID, f"{self.name} must be a number {ends} {self.high:g}.", self.name)
        return float(value)


@dataclass(frozen=True)
class Text:
    """A string of at most `limit` characters; `kind` is the error of any other value."""

    name: str
    doc: str
    limit: int | None = None
    kind: ErrorKind = INVALID

    @property
    def schema(self) -> Schema:
        """The JSON Schema of its values."""
        return nullable({"type": "string"} | ({} if self.limit is None else {"maxLength": self.limit}))

    def read(self, body: Body) -> str | None:
        """Its value, or None."""
        value = body.get(self.name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise ApiError(self.kind, f"{self.name} must be a string.", self.name)
        if self.limit is not None and len(value) > self.limit:
            raise ApiError(self.kind, f"{self.name} must have at most {self.limit} characters.", self.name)
        return value


@dataclass(frozen=True)
class StringMap:
    """An object of at most `entries` strings with bounded names (`key` characters) and values (`text` characters)."""

    name: str
    doc: str
    entries: int
    key: int
    text: int

    @property
    def schema(self) -> Schema:
        """The JSON Schema of its values."""
        values = {"type": "string", "maxLength": self.text}
        return nullable(
            {
                "type": "object",
                "maxProperties": self.entries,
                "propertyNames": {"maxLength": self.key},
                "additionalProperties": values,
            }
        )

    def read(self, body: Body) -> dict[str, str] | None:
        """Its value, or None."""
        value = body.get(self.name)
        if value is None:
            return None
        if not isinstance(value, dict) or len(value) > self.entries:
            raise ApiError(
                INVALID_PARAMETER, f"{self.name} must be an object of at most {self.entries} entries.", self.name
            )
        for item, content in value.items():
            if len(item) > self.key:
                raise ApiError(
                    INVALID_PARAMETER, f"A key of {self.name} has more than {self.key} characters.", self.name
                )
            if not isinstance(content, str) or len(content) > self.text:
                message = f"{self.name}.{item} must be a string of at most {self.text} characters."
                raise ApiError(INVALID_PARAMETER, message, self.name)
        return dict(value)


@dataclass(frozen=True)
class Shaped(Generic[T]):
    """A field with a reader of its own: `take` gets the value, which is not None, and returns what it means."""

    name: str
    doc: str
    schema: Schema
    take: Callable[[Any], T]
    default: T

    def read(self, body: Body) -> T:
        """What its value means, or the default."""
        value = body.get(self.name)
        return self.default if value is None else self.take(value)


@dataclass(frozen=True)
class Refused:
    """A field of the API that is no part of this server; null asks for nothing unless `always`."""

    name: str
    doc: str
    kind: ErrorKind
    always: bool = False
    schema: Any = None  # none: the field is not described

    def read(self, body: Body) -> None:
        """Nothing, or the refusal."""
        if self.name in body and (self.always or body[self.name] is not None):
            raise ApiError(self.kind, f"{self.name} is not supported: {self.doc}", self.name)
