"""Rings: the last rows of every slot, the row of position p at place p modulo the depth.

In a step a ring is read first and then written, in place. XLA sees no order between the two, and would copy the ring to
be free in it, the rings of all layers once per layer; so the place of the write is made to depend on what was read.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax


def read_ring(ring: jax.Array, layer: jax.Array, slot: jax.Array, position: jax.Array) -> jax.Array:
    """The rows of `slot` and `position` (int32 of one shape [...]) in a ring [L, S, D, *shape]: [..., *shape]."""
    return of_layer(ring, layer)[jnp.maximum(slot, 0), jnp.maximum(position, 0) % ring.shape[2]]


def of_layer(ring: jax.Array, layer: jax.Array) -> jax.Array:
    """The ring of one layer, [S, D, *shape]."""
    return lax.dynamic_index_in_dim(ring, layer, keepdims=False)


def write_ring(
    ring: jax.Array,
    x: jax.Array,
    layer: jax.Array,
    slot: jax.Array,
    position: jax.Array,
    keep: jax.Array,
    read: Sequence[jax.Array],
    zero: jax.Array,
) -> jax.Array:
    """The ring [L, S, D, *shape] with rows x [R, *shape] put in where `keep` (bool [R]) says so.

    No two kept rows may have the same place: of a run of positions keep at most the last D. `read` is everything that
    the step computes from the ring's old rows, or what is computed from that; `zero` as in `dgpp.kernels.rounding`.
    """
    slots, depth = ring.shape[1:3]
    at = (jnp.where(keep, slot, slots), jnp.maximum(position, 0) % depth)  # a slot that is not there is dropped
    mine = of_layer(ring, layer).at[at].set(x, mode="drop")
    for one in read:
        first = one[(0,) * one.ndim].astype(jnp.float32)
        layer = layer + (lax.bitcast_convert_type(first, jnp.int32) & zero)
    return lax.dynamic_update_index_in_dim(ring, mine, layer, 0)
