"""The one way a float32 value becomes a stored bfloat16."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def to_bf16(x: jax.Array) -> jax.Array:
    """`x` float32 rounded to bfloat16, to nearest, ties to even.

    A plain conversion may be dropped together with a later conversion back (XLA allows excess precision between
    fused operations), which would make bits depend on fusion; `reduce_precision` is always carried out.
    """
    return jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7).astype(jnp.bfloat16)


def add_bf16(x: jax.Array, y: jax.Array) -> jax.Array:
    """x + y of two bfloat16 arrays: one float32 addition, one rounding."""
    return to_bf16(x.astype(jnp.float32) + y.astype(jnp.float32))
