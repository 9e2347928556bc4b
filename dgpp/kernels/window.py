"""What a row needs of the rows before it: causal convolutions, token pairs, the raw keys of a block.

Earlier rows come from the batch where they are in the row's own segment, else from a ring (`dgpp.kernels.rings`), whose
depth is at least the farthest look back plus the rows of one verify segment. So neither cutting a prompt nor taking
rows back changes what a row sees.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dgpp.kernels.rings import read_ring, write_ring
from dgpp.kernels.rounding import rounded
from dgpp.kernels.rows import Rows


def window(
    x: jax.Array, ring: jax.Array, layer: jax.Array, rows: Rows, back: tuple[int, ...]
) -> tuple[list[jax.Array], jax.Array]:
    """(for every offset b of `back` the rows at position - b, each of the shape and type of `x` [R, *shape], zeros
    before position 0; the ring [L, S, D, *shape] with the batch's rows put in).

    Raises ValueError when an offset reaches farther than the ring.
    """
    depth = ring.shape[2]
    if any(not 0 < b <= depth for b in back):
        raise ValueError(f"window: offsets {back} are not all within the ring's depth {depth}")
    order = jnp.arange(x.shape[0], dtype=jnp.int32)
    found, read = [], []
    for b in back:
        near = x[jnp.maximum(order - b, 0)]
        far = read_ring(ring, layer, rows.slot, rows.position - b)
        read.append(far)
        held = _wide(order - b >= rows.first, x)
        far = jnp.where(_wide(rows.position >= b, x), far.astype(x.dtype), jnp.zeros_like(x))
        found.append(jnp.where(held, near, far))
    keep = (order < rows.used) & (rows.last - order < depth)  # of a segment longer than the ring only its end
    return found, write_ring(ring, x.astype(ring.dtype), layer, rows.slot, rows.position, keep, read, rows.zero)


def causal_conv(taps: list[jax.Array], weight: jax.Array, zero: jax.Array) -> jax.Array:
    """Depthwise convolution: sum over k of weight[c, k] * taps[k][r, c], float32 [R, C], added from +0 in order of k.

    `weight` is [C, 1, K] as in the checkpoint, whose tap 0 meets the oldest row.
    """
    total = jnp.zeros(taps[0].shape, jnp.float32)
    for k, rows in enumerate(taps):
        total = total + rounded(rows.astype(jnp.float32) * weight[:, 0, k].astype(jnp.float32), zero)
    return total


def _wide(mask: jax.Array, x: jax.Array) -> jax.Array:
    return mask.reshape(-1, *(1,) * (x.ndim - 1))
