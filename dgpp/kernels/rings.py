"""Rings: the last rows of every slot, the row of position p at place p modulo the depth."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from dgpp.kernels.lanes import as_bits


def read_ring(ring: jax.Array, layer: jax.Array, slot: jax.Array, position: jax.Array) -> jax.Array:
    """The rows of `slot` and `position` (int32 of one shape [...]) in a ring [L, S, D, *shape]: [..., *shape]."""
    at = (layer, jnp.maximum(slot, 0), jnp.maximum(position, 0) % ring.shape[2])
    if ring.dtype == jnp.bfloat16:
        return lax.bitcast_convert_type(as_bits(ring)[at], jnp.bfloat16)
    return ring[at]


def write_ring(
    ring: jax.Array, x: jax.Array, layer: jax.Array, slot: jax.Array, position: jax.Array, keep: jax.Array
) -> jax.Array:
    """The ring [L, S, D, *shape] with rows x [R, *shape] put in where `keep` (bool [R]) says so.

    No two kept rows may have the same place: of a run of positions keep at most the last D.
    """
    slots, depth = ring.shape[1:3]
    at = (layer, jnp.where(keep, slot, slots), jnp.maximum(position, 0) % depth)  # a slot that is not there is dropped
    if ring.dtype == jnp.bfloat16:
        bits = as_bits(ring).at[at].set(as_bits(x), mode="drop")
        return lax.bitcast_convert_type(bits, jnp.bfloat16)
    return ring.at[at].set(x, mode="drop")
