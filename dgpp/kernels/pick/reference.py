"""picks in plain JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def picks(logits: jax.Array) -> jax.Array:
    """int32 [B]; as in `dgpp.kernels.pick`."""
    best = jnp.argmax(logits, axis=-1).astype(jnp.int32)  # the first of equals, or a NaN
    return jnp.where(jnp.isnan(logits.max(axis=-1)), -1, best)
