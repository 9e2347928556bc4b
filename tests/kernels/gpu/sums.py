"""A kernel that sums a row as a program of several warps does."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.tree import dealt_sum


@triton.jit
def sum_of(x: tl.tensor, out: tl.tensor, WIDTH: tl.constexpr, LEVELS: tl.constexpr, WARPS: tl.constexpr) -> None:
    """out[0]: the sum of x f32 [WIDTH]."""
    tl.store(out, dealt_sum(tl.load(x + tl.arange(0, WIDTH)), WIDTH, LEVELS, WARPS, True))
