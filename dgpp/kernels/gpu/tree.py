"""The halving tree as Triton functions: the order of `dgpp.kernels.norm.reference.tree_sum`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tree_sum(x: tl.tensor, WIDTH: tl.constexpr, LEVELS: tl.constexpr) -> tl.tensor:
    """The sum of x [WIDTH], x[i] + x[i + half] until one is left: a scalar. WIDTH is 2^LEVELS."""
    return tl.sum(tree_rows(tl.reshape(x, (1, WIDTH)), 1, WIDTH, LEVELS), axis=0)  # of one


@triton.jit
def dealt_sum(
    x: tl.tensor, WIDTH: tl.constexpr, LEVELS: tl.constexpr, WARPS: tl.constexpr, ASM: tl.constexpr
) -> tl.tensor:
    """`tree_sum` in a program of WARPS warps.

    The far halves of x are those of warps, which would meet in shared memory at every level. So x is dealt out anew:
    what is added first to a thread, then to the lanes of a warp, the last levels to warps. Triton's sum over an axis
    that lies across lanes, or across warps, is a halving tree.
    """
    DEALT: tl.constexpr = 32 * WARPS
    if ASM and WIDTH >= DEALT:
        i = tl.arange(0, WIDTH)
        y = tl.gather(x, i // DEALT * DEALT + i % 32 * WARPS + i % DEALT // 32, axis=0)
        y = tl.reshape(y, (WIDTH // DEALT, WARPS, 32))
        for level in tl.static_range(LEVELS):
            if WIDTH >> level > DEALT:
                y = tl.sum(tl.reshape(y, (2, (WIDTH >> (level + 1)) // DEALT, WARPS, 32)), axis=0)
        total = tl.sum(tl.sum(tl.reshape(y, (WARPS, 32)), axis=1), axis=0)
    else:
        total = tree_sum(x, WIDTH, LEVELS)
    return total


@triton.jit
def tree_rows(x: tl.tensor, H: tl.constexpr, WIDTH: tl.constexpr, LEVELS: tl.constexpr) -> tl.tensor:
    """The halving trees of x [H, WIDTH] over its last axis: [H]. WIDTH is 2^LEVELS."""
    for i in tl.static_range(LEVELS):
        x = tl.sum(tl.reshape(x, (H, 2, WIDTH >> (i + 1))), axis=1)  # of two
    return tl.reshape(x, (H,))
