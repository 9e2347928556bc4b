"""Parts as Triton functions: of a sum over K, in the order of `dgpp.kernels.linear.parts.summed`, and of columns."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def added(
    parts: tl.tensor,  # [PARTS, ...], STRIDE elements each
    at: tl.tensor,  # places within a part
    inside: tl.tensor,
    PARTS: tl.constexpr,
    STRIDE: tl.constexpr,
) -> tl.tensor:
    """The parts at places, added in ascending order; 0 where not `inside`."""
    total = tl.load(parts + at, mask=inside, other=0.0)
    for part in tl.static_range(1, PARTS):
        total = total + tl.load(parts + part * STRIDE + at, mask=inside, other=0.0)
    return total


@triton.jit
def edges(bounds: tl.tensor, leaf: tl.tensor, LENGTH: tl.constexpr) -> tl.tensor:
    """(start, length) of a leaf of the columns: from `bounds`, int32 [leaves, 2], or LENGTH each."""
    if LENGTH:
        start = leaf * LENGTH
        length = LENGTH
    else:
        start = tl.load(bounds + 2 * leaf)
        length = tl.load(bounds + 2 * leaf + 1) - start
    return start, length
