"""grouped linear in plain JAX: row by row and expert by expert."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from dgpp.formats import Weight, format_named
from dgpp.kernels.linear.arguments import Ranges, check_ranges, check_scalars, check_weight
from dgpp.kernels.product import leaves


def grouped_linear(x: jax.Array, experts: jax.Array, w: Weight, layer: jax.Array, used: jax.Array) -> jax.Array:
    """float32 [R, E', N]; arguments, order and promise as in `dgpp.kernels.experts`."""
    return grouped_linear_leaves(x, experts, w, layer, used, ((0, w.shape[-1]),))[0]


def grouped_linear_leaves(
    x: jax.Array, experts: jax.Array, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges
) -> jax.Array:
    """float32 [len(ranges), R, E', N]; arguments, order and promise as in `dgpp.kernels.experts`."""
    check_scalars("grouped_linear", layer=layer, used=used)
    if len(w.shape) != 3:
        raise ValueError(f"grouped_linear: w must have the logical shape [E, N, K], not {list(w.shape)}")
    stacked = check_weight("grouped_linear", w)
    held, n, k = w.shape
    if experts.ndim != 2 or experts.dtype != jnp.int32:
        raise ValueError(f"grouped_linear: experts must be int32 [R, E'], not {experts.dtype} of shape {experts.shape}")
    rows, chosen = experts.shape
    if x.dtype != jnp.bfloat16 or x.shape not in ((rows, k), (rows, chosen, k)):
        raise ValueError(
            f"grouped_linear: x must be bfloat16 [{rows}, {k}] or [{rows}, {chosen}, {k}], not {x.dtype} of shape "
            f"{x.shape}"
        )
    ranges = check_ranges("grouped_linear_leaves", ranges, k)
    format = format_named(w.format)
    inputs = x if x.ndim == 3 else x[:, None]

    def pair(i: jax.Array, out: jax.Array) -> jax.Array:
        row, j = i // chosen, i % chosen
        expert = experts[row, j]
        at = (row, j if x.ndim == 3 else 0, 0)
        one = lax.dynamic_slice(inputs, at, (1, 1, k))[0]
        # A row beyond `used`, or an expert that is not here, counts as no row at all.
        there = jnp.where((row < used) & (expert >= 0) & (expert < held), 1, 0).astype(jnp.int32)
        lead = (layer, expert) if stacked else (expert,)
        y = leaves(one, w.arrays, (n, k), format, lead, there, ranges)
        return lax.dynamic_update_slice(out, y[:, :, None], (0, row, j, 0))

    out = jnp.zeros((len(ranges), rows, chosen, n), jnp.float32)
    return lax.fori_loop(0, rows * chosen, pair, out)
