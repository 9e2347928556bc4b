"""Numbers of layers, pages and rows as Triton functions."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def clamped(number: tl.tensor, COUNT: tl.constexpr) -> tl.tensor:
    """A number of one of COUNT: the nearest, where it is none."""
    return tl.minimum(tl.maximum(number, 0), COUNT - 1)
