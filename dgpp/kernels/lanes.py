"""The one order in which our kernels add: sixteen lanes, then a halving tree.

A sum over an axis puts element i into lane i % 16, adds each lane in ascending order starting from +0, and adds the
lanes as l + (l+8), then + 4, + 2, + 1. Sixteen float32 are one AVX-512 register, two AVX2 or four NEON registers, so
every one of them can follow the order at full speed, and none of them defines it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

LANES = 16


def as_bits(x: jax.Array) -> jax.Array:
    """A bfloat16 array as uint16.

    What is only cut and copied is cut and copied as integers: XLA does not slice bfloat16 on a CPU, it first widens
    the array it slices from to float32, which may be all the weights or all the cache.
    """
    return lax.bitcast_convert_type(x, jnp.uint16)


def widened(bits: jax.Array) -> jax.Array:
    """The bfloat16 values with these bits, as float32: they are its upper halves."""
    return lax.bitcast_convert_type(bits.astype(jnp.uint32) << 16, jnp.float32)


def tree(lanes: jax.Array) -> jax.Array:
    """The sum over the last axis (16 lanes) by halving: [..., 16] -> [...]."""
    width = LANES
    while width > 1:
        width //= 2
        lanes = lanes[..., :width] + lanes[..., width:]
    return lanes[..., 0]
