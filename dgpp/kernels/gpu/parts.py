"""The parts of a sum over K as a Triton function: the order of `dgpp.kernels.linear.parts.summed`."""

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
