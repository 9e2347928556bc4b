"""The one order in which our kernels add: sixteen lanes, then a halving tree.

A sum over an axis puts element i into lane i % 16, adds each lane in ascending order starting from +0, and adds the
lanes as l + (l+8), then + 4, + 2, + 1. Sixteen float32 are one AVX-512 register, two AVX2 or four NEON registers, so
every one of them can follow the order at full speed, and none of them defines it.
"""

from __future__ import annotations

import jax

LANES = 16


def tree(lanes: jax.Array) -> jax.Array:
    """The sum over the last axis (16 lanes) by halving: [..., 16] -> [...]."""
    width = LANES
    while width > 1:
        width //= 2
        lanes = lanes[..., :width] + lanes[..., width:]
    return lanes[..., 0]
