"""Typed readers of a request's fields: each returns the value or raises the 400 that names the field.

`null` counts as omitted unless a reader says otherwise. Booleans are not numbers here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dgpp.serve.errors import INVALID, INVALID_PARAMETER, ApiError, ErrorKind

INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def boolean(body: Mapping[str, Any], key: str, default: bool, *, null: bool = True, prefix: str = "") -> bool:
    """true or false; with `null` off an explicit null is an error."""
    value = body.get(key, default)
    if value is None and null:
        return default
    if not isinstance(value, bool):
        raise ApiError(INVALID, f"{prefix}{key} must be true or false.", prefix + key)
    return value


def integer(
    body: Mapping[str, Any], key: str, low: int, high: int, *, default: int | None = None, integral: bool = True
) -> int | None:
    """An integer in [low, high]; with `integral` also a number like 8.0, which some clients send."""
    value = body.get(key)
    if value is None:
        return default
    if integral and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ApiError(INVALID, f"{key} must be an integer between {low} and {high}.", key)
    return value


def number(body: Mapping[str, Any], key: str, low: float, high: float, *, above: bool = False) -> float | None:
    """A finite number in [low, high], or in (low, high] with `above`."""
    value = body.get(key)
    if value is None:
        return None
    usable = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
    if not usable or not math.isfinite(value) or (above and value <= low):
        bounds = f"above {low:g} and at most {high:g}" if above else f"between {low:g} and {high:g}"
        raise ApiError(INVALID, f"{key} must be a number {bounds}.", key)
    return float(value)


def string(body: Mapping[str, Any], key: str, limit: int | None = None, *, kind: ErrorKind = INVALID) -> str | None:
    """A string of at most `limit` characters."""
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ApiError(kind, f"{key} must be a string.", key)
    if limit is not None and len(value) > limit:
        raise ApiError(kind, f"{key} must have at most {limit} characters.", key)
    return value


def string_map(body: Mapping[str, Any], key: str, *, entries: int, name: int, text: int) -> dict[str, str] | None:
    """An object of at most `entries` strings with bounded names (`name`) and values (`text` characters)."""
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) > entries:
        raise ApiError(INVALID_PARAMETER, f"{key} must be an object of at most {entries} entries.", key)
    for item, content in value.items():
        if len(item) > name:
            raise ApiError(INVALID_PARAMETER, f"A key of {key} has more than {name} characters.", key)
        if not isinstance(content, str) or len(content) > text:
            raise ApiError(INVALID_PARAMETER, f"{key}.{item} must be a string of at most {text} characters.", key)
    return dict(value)
