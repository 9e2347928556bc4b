"""BF16: one bfloat16 per weight, as most releases store their unquantized tensors.

Layout: field `values`, dtype BF16, shape [N, K] or any other, row-major. A bfloat16 is the upper half of a float32
(1 sign, 8 exponent, 7 mantissa bits), so decoding is exact and encoding rounds to nearest, ties to even.
Slice rule: any cut of any axis.
"""

from __future__ import annotations

from dataclasses import dataclass

from dgpp.formats.dense import Dense
from dgpp.formats.minifloat import BFLOAT16

__all__ = ["BF16", "BFLOAT16"]


@dataclass(frozen=True)
class BF16(Dense):
    """The BF16 format."""

    tag: str = "BF16"
