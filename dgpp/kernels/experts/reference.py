"""The experts' ops in plain JAX: row by row and expert by expert."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from dgpp.formats import Weight, format_named
from dgpp.kernels.experts import composed
from dgpp.kernels.experts.arguments import check_grouped
from dgpp.kernels.linear.arguments import check_weight
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.product import leaves


def grouped_linear(x: jax.Array, experts: jax.Array, w: Weight, layer: jax.Array, used: jax.Array) -> jax.Array:
    """float32 [R, E', N]; arguments, order and promise as in `dgpp.kernels.experts`."""
    return grouped_linear_leaves(x, experts, w, layer, used, ((0, w.shape[-1]),))[0]


def grouped_linear_leaves(
    x: jax.Array, experts: jax.Array, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges
) -> jax.Array:
    """float32 [len(ranges), R, E', N]; arguments, order and promise as in `dgpp.kernels.experts`."""
    ranges = check_grouped(x, experts, w, layer, used, ranges)
    (held, n, k), (rows, chosen) = w.shape, experts.shape
    stacked = check_weight("grouped_linear", w)
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


grouped_gated = partial(composed.gated, grouped_linear)
grouped_down = partial(composed.down, grouped_linear_leaves)
