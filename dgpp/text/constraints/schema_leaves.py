"""Keywords of strings, counts and literal values, checked and put into what the library enforces exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dgpp.text.constraints.formats import NUMBER_FORMATS, STRING_FORMATS, UNBOUNDED_FORMATS
from dgpp.text.constraints.patterns import translate
from dgpp.text.constraints.schema_numbers import exact, unknown_format
from dgpp.text.constraints.schema_report import Place

LARGEST = 2**31 - 1


def count(node: Mapping[str, Any], key: str, at: Place) -> int | None:
    """A length or a number of items, or None where the keyword is absent."""
    if key not in node:
        return None
    value = node[key]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise (at / key).refused(f"must be an integer from 0 to {LARGEST}")
    return value


def ordered(node: Mapping[str, Any], least: str, most: str, at: Place) -> tuple[int, int | None]:
    """Two counts of which the first must not be the greater."""
    low, high = count(node, least, at) or 0, count(node, most, at)
    if high is not None and low > high:
        raise (at / most).refused(f"is less than {least}")
    return low, high


def strings(node: Mapping[str, Any], types: set[str], at: Place) -> dict[str, Any]:
    """Lengths in characters, pattern and format, as lengths and a pattern."""
    result: dict[str, Any] = {}
    low, high = ordered(node, "minLength", "maxLength", at)
    if low:
        result["minLength"] = low
    if high is not None:
        result["maxLength"] = high
    patterns = []
    if "pattern" in node:
        patterns.append(pattern(node["pattern"], at / "pattern"))
    if "format" in node and (whole := _format(node["format"], types, at / "format")) is not None:
        patterns.append(f"^(?:{whole})$")
    if patterns:
        result["pattern"] = patterns[0]
    if len(patterns) > 1:
        result["allOf"] = [{"pattern": other} for other in patterns[1:]]
    return result


def pattern(value: Any, at: Place) -> str:
    """A regular expression in the library's syntax."""
    if not isinstance(value, str):
        raise at.refused("must be a string")
    try:
        return translate(value)
    except ValueError as error:
        raise at.refused(f"uses what is not supported in a pattern: {error}") from None


def _format(name: Any, types: set[str], at: Place) -> str | None:
    if not isinstance(name, str):
        raise at.refused("must be a string")
    if name in STRING_FORMATS:
        return STRING_FORMATS[name]
    if name in (*NUMBER_FORMATS, *UNBOUNDED_FORMATS) and types & {"number", "integer"}:
        return None
    raise unknown_format(tuple(STRING_FORMATS), at)


def literal(value: Any, at: Place) -> Any:
    """A member of `enum`, or a `const`."""
    match value:
        case bool() | None | str():
            return value
        case int() | float():
            if not math.isfinite(value) or not exact(value):
                raise at.refused("is a number with too many digits to be enforced exactly; use a string")
            return value
        case list():
            return [literal(item, at / index) for index, item in enumerate(value)]
        case dict():
            return {key: literal(item, at / key) for key, item in value.items()}
    raise at.refused("must be a JSON value")
