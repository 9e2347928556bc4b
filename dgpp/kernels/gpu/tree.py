"""The halving tree as a Triton function: the order of `dgpp.kernels.norm.reference.tree_sum`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tree_sum(x: tl.tensor, WIDTH: tl.constexpr) -> tl.tensor:
    """The sum of x [WIDTH], x[i] + x[i + half] until one is left: a scalar. WIDTH is a power of two, 2 to 1024."""
    tl.static_assert(WIDTH <= 1024)
    if WIDTH >= 1024:
        x = _halved(x, 1024)
    if WIDTH >= 512:
        x = _halved(x, 512)
    if WIDTH >= 256:
        x = _halved(x, 256)
    if WIDTH >= 128:
        x = _halved(x, 128)
    if WIDTH >= 64:
        x = _halved(x, 64)
    if WIDTH >= 32:
        x = _halved(x, 32)
    if WIDTH >= 16:
        x = _halved(x, 16)
    if WIDTH >= 8:
        x = _halved(x, 8)
    if WIDTH >= 4:
        x = _halved(x, 4)
    return tl.sum(x, axis=0)  # of two


@triton.jit
def _halved(x: tl.tensor, WIDTH: tl.constexpr) -> tl.tensor:
    left, right = tl.split(tl.permute(tl.reshape(x, (2, WIDTH // 2)), (1, 0)))
    return left + right


@triton.jit
def tree_rows(x: tl.tensor, H: tl.constexpr, WIDTH: tl.constexpr, LEVELS: tl.constexpr) -> tl.tensor:
    """The halving trees of x [H, WIDTH] over its last axis: [H]. WIDTH is 2^LEVELS."""
    for i in tl.static_range(LEVELS):
        x = tl.sum(tl.reshape(x, (H, 2, WIDTH >> (i + 1))), axis=1)  # of two
    return tl.reshape(x, (H,))
