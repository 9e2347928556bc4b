"""The halving tree as Triton functions: the order of `dgpp.kernels.norm.reference.tree_sum`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tree_sum(x: tl.tensor, WIDTH: tl.constexpr, LEVELS: tl.constexpr) -> tl.tensor:
    """The sum of x [WIDTH], x[i] + x[i + half] until one is left: a scalar. WIDTH is 2^LEVELS."""
    return tl.sum(tree_rows(tl.reshape(x, (1, WIDTH)), 1, WIDTH, LEVELS), axis=0)  # of one


@triton.jit
def tree_rows(x: tl.tensor, H: tl.constexpr, WIDTH: tl.constexpr, LEVELS: tl.constexpr) -> tl.tensor:
    """The halving trees of x [H, WIDTH] over its last axis: [H]. WIDTH is 2^LEVELS."""
    for i in tl.static_range(LEVELS):
        x = tl.sum(tl.reshape(x, (H, 2, WIDTH >> (i + 1))), axis=1)  # of two
    return tl.reshape(x, (H,))
