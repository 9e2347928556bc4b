"""Keywords of numbers (spec/api.md §8.1), put into what the library enforces exactly.

The library reads numbers as doubles, and not always the nearest one. Bounds with more digits than it surely gets right
are moved inwards, so that whatever it allows is within those that were asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from typing import Any

from dgpp.text.constraints.errors import GrammarError
from dgpp.text.constraints.formats import NUMBER_FORMATS, UNBOUNDED_FORMATS
from dgpp.text.constraints.schema_report import Place

_DIGITS = 15  # any decimal of so many is read exactly
_EXPONENT = 22  # up to this power of ten
_INTEGER = 2**53  # and any integer up to this; from there to 2^63 those that doubles can hold
_LARGEST = Decimal(2**63 - 1024)  # the library negates 64-bit integers
_TINY = Decimal("1e-15")  # stands for the least number above 0
_MULTIPLE = 10_000  # the library's automata have a state for every remainder
_UP, _DOWN = Context(prec=_DIGITS, rounding=ROUND_CEILING), Context(prec=_DIGITS, rounding=ROUND_FLOOR)


def numbers(node: Mapping[str, Any], types: set[str], at: Place) -> dict[str, Any]:
    """Bounds, multipleOf and the number formats of a schema that allows numbers (`types` has "number") or integers.

    Bounds of numbers become inclusive: the library lets an excluded integer into an interval that has no other.
    """
    low = _tightest(node, "minimum", "exclusiveMinimum", types, at)
    high = _tightest(node, "maximum", "exclusiveMaximum", types, at)
    format = node.get("format")
    if format in NUMBER_FORMATS:
        least, most = (
            _inwards(Decimal(bound), up) for bound, up in zip(NUMBER_FORMATS[format], (True, False), strict=True)
        )
        low, high = least if low is None else max(low, least), most if high is None else min(high, most)
    elif format is not None and "string" not in types and format not in UNBOUNDED_FORMATS:
        raise unknown_format((*NUMBER_FORMATS, *UNBOUNDED_FORMATS), at / "format")
    result: dict[str, Any] = {
        key: plain(bound) for key, bound in (("minimum", low), ("maximum", high)) if bound is not None
    }
    if "multipleOf" in node:
        result["multipleOf"] = _multiple(node["multipleOf"], types, at / "multipleOf")
    return result


def spelled_short(bounds: Mapping[str, Any]) -> list[float]:
    """Numbers within rewritten bounds that the library leaves out: of a bound of 0.75 those that its digits begin with,
    0.7. They are to be allowed beside the interval."""
    low, high = (Decimal(repr(bounds[key])) if key in bounds else None for key in ("minimum", "maximum"))
    factor = Decimal(repr(bounds.get("multipleOf", 0)))
    found = []
    for bound, sign in ((high, ""), (low, "-")):
        if bound is None or (bound < 0) != (sign == "-"):
            continue
        whole, _, fraction = format(abs(bound), "f").partition(".")
        for count in range(1, len(fraction)):
            value = Decimal(f"{sign}{whole}.{fraction[:count]}")
            inside = (low is None or low <= value) and (high is None or value <= high)
            if fraction[count - 1] != "0" and inside and (not factor or value % factor == 0):
                found.append(float(value))
    return found


def unknown_format(known: tuple[str, ...], at: Place) -> GrammarError:
    """The refusal of a format that is not among those known."""
    return at.refused("names a format that is not supported; use one of " + ", ".join(known) + ", or leave it out")


def plain(value: Decimal) -> int | float:
    """A decimal as JSON writes it."""
    return int(value) if value == value.to_integral_value() and abs(value) <= 2**63 else float(value)


def exact(value: int | float) -> bool:
    """Whether the library reads a number as exactly this."""
    number = Decimal(repr(value))
    return abs(value) <= _INTEGER if isinstance(value, int) else _few_digits(number)


def _tightest(node: Mapping[str, Any], inclusive: str, exclusive: str, types: set[str], at: Place) -> Decimal | None:
    up = inclusive == "minimum"
    bounds = []
    if inclusive in node:
        bounds.append(_inwards(_number(node[inclusive], at / inclusive), up))
    if exclusive in node:
        bounds.append(_beyond(_number(node[exclusive], at / exclusive), up, "number" not in types))
    return (max if up else min)(bounds, default=None)


def _number(value: Any, at: Place) -> Decimal:
    if isinstance(value, bool):
        raise at.refused("must be a number: true and false are the form of a draft before 6")
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise at.refused("must be a number")
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _inwards(value: Decimal, up: bool) -> Decimal:
    """The value itself where it is read exactly, else the next number above or below it that is."""
    if value == value.to_integral_value() and abs(value) <= 2**63:
        near = float(value)
        if (near < value) if up else (near > value):
            near = math.nextafter(near, math.inf if up else -math.inf)
        return max(-_LARGEST, Decimal(int(near))) if up else min(_LARGEST, Decimal(int(near)))
    return value if _few_digits(value) else (_UP if up else _DOWN).plus(value)


def _beyond(value: Decimal, up: bool, integer: bool) -> Decimal:
    """The next number after `value`; the next integer where only integers count."""
    if integer:
        step = value.to_integral_value(ROUND_FLOOR) + 1 if up else value.to_integral_value(ROUND_CEILING) - 1
        return _inwards(step, up)
    context = _UP if up else _DOWN
    near = context.next_plus(value) if up else context.next_minus(value)
    if abs(near) < _TINY:
        near = _TINY if up else -_TINY
    return near


def _few_digits(value: Decimal) -> bool:
    _, digits, exponent = value.normalize().as_tuple()
    return len(digits) <= _DIGITS and isinstance(exponent, int) and abs(exponent) <= _EXPONENT


def _multiple(value: Any, types: set[str], at: Place) -> int | float:
    number = _number(value, at)
    if number <= 0:
        raise at.refused("must be above 0")
    factor = Fraction(number)
    if "number" not in types:
        factor = Fraction(factor.numerator)  # the integers among the multiples of p/q are those of p
    digits = factor
    while digits.denominator != 1:
        digits *= 10
    if digits > _MULTIPLE:
        raise at.refused(
            f"has digits above {_MULTIPLE}, which is too costly to enforce; use minimum and maximum instead"
        )
    return int(factor) if factor.denominator == 1 else float(factor)
