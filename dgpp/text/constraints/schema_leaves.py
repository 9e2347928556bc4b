"""Keywords of numbers and strings, and literal values, checked and put into what the library enforces exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dgpp.text.constraints.errors import GrammarError
from dgpp.text.constraints.formats import NUMBER_FORMATS, STRING_FORMATS, UNBOUNDED_FORMATS
from dgpp.text.constraints.patterns import translate
from dgpp.text.constraints.schema_report import Place

BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
EXACT = 2**53  # the library counts in doubles
MULTIPLE = 10_000  # its automata have a state for every remainder
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


def numbers(node: Mapping[str, Any], types: set[str], at: Place) -> dict[str, Any]:
    """Bounds, multipleOf and the number formats.

    Integers that a double cannot hold are moved inwards to the nearest that it can.
    """
    result: dict[str, Any] = {key: _bound(node[key], key, at / key) for key in BOUNDS if key in node}
    format = node.get("format")
    if format is not None and "string" not in types and format not in (*NUMBER_FORMATS, *UNBOUNDED_FORMATS):
        raise _unknown_format(types, at / "format")
    if format in NUMBER_FORMATS:
        low, high = NUMBER_FORMATS[format]
        result["minimum"] = max(result.get("minimum", -math.inf), _inwards(low, up=True))
        result["maximum"] = min(result.get("maximum", math.inf), _inwards(high, up=False))
    if "multipleOf" in node:
        result["multipleOf"] = _multiple(node["multipleOf"], types, at / "multipleOf")
    return result


def _bound(value: Any, key: str, at: Place) -> int | float:
    if isinstance(value, bool):
        raise at.refused("must be a number: true and false are the form of a draft before 6")
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise at.refused("must be a number")
    return _inwards(value, up="inimum" in key)


def _inwards(value: int | float, *, up: bool) -> int | float:
    """The value itself where it is exact, or the next double above or below it."""
    if isinstance(value, float) or abs(value) <= EXACT:
        return value
    near = float(value)
    if (int(near) < value) if up else (int(near) > value):
        near = math.nextafter(near, math.inf if up else -math.inf)
    return int(near)


def _multiple(value: Any, types: set[str], at: Place) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise at.refused("must be a number above 0")
    exact = Fraction(repr(value))
    if "number" not in types:
        exact = Fraction(exact.numerator)  # the integers among the multiples of p/q are those of p
    digits = exact
    while digits.denominator != 1:
        digits *= 10
    if digits > MULTIPLE:
        raise at.refused(
            f"has more than {MULTIPLE} as its digits, which is too costly to enforce; use minimum and maximum"
        )
    return int(exact) if exact.denominator == 1 else float(exact)


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
    raise _unknown_format(types, at)


def _unknown_format(types: set[str], at: Place) -> GrammarError:
    known = STRING_FORMATS if "string" in types else (*NUMBER_FORMATS, *UNBOUNDED_FORMATS)
    return at.refused("names a format that is not supported; use one of " + ", ".join(known) + ", or a pattern")


def literal(value: Any, at: Place) -> Any:
    """A member of `enum`, or a `const`."""
    match value:
        case bool() | None | str():
            return value
        case int() if abs(value) > EXACT:
            raise at.refused(f"is an integer beyond ±{EXACT}, which cannot be enforced exactly; use a string")
        case float() if not math.isfinite(value):
            raise at.refused("must be a JSON value")
        case int() | float():
            return value
        case list():
            return [literal(item, at / index) for index, item in enumerate(value)]
        case dict():
            return {key: literal(item, at / key) for key, item in value.items()}
    raise at.refused("must be a JSON value")
