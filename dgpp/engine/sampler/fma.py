"""a * b + c with one rounding, on machines and in languages where only separate operations can be relied on."""

from __future__ import annotations

import numpy as np


def fma(a: float, b: float, c: float) -> float:
    """a * b + c in exact integers, rounded once to float64 (ties to even, subnormals included).

    An exact zero is +0.0, whatever the signs. Raises OverflowError for an infinite argument or a result beyond
    float64, ValueError for NaN.
    """
    (an, ad), (bn, bd), (cn, cd) = a.as_integer_ratio(), b.as_integer_ratio(), c.as_integer_ratio()
    return (an * bn * cd + cn * ad * bd) / (ad * bd * cd)  # int / int rounds the exact quotient once


def fma_f(a: np.float32, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c rounded once to float32; `c` float32 [N] may hold -inf, `b` float64 [N] whole numbers below 2^24.

    The product is exact in float64. The sum is first rounded to odd there: an inexact sum whose last bit is even moves
    one place towards its error, so that it never lies half-way between two float32 values. 53 bits are two more than
    24 + 24 + 2 needs, so the second rounding gives what one rounding would (Boldo and Melquiond, 2008).
    """
    product, addend = float(a) * b, c.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        total = product + addend
        part = total - product
        error = (product - (total - part)) + (addend - part)  # Knuth's two-sum: total + error is the exact sum
        even = (total.view(np.int64) & 1) == 0
        inexact = np.isfinite(total) & (error != 0)
        towards = np.where(error > 0, np.inf, -np.inf)
        return np.where(inexact & even, np.nextafter(total, towards), total).astype(np.float32)
