"""linear in plain JAX, for weights of every format: the order of `dgpp.kernels.linear`, written out."""

from __future__ import annotations

import jax

from dgpp.formats import Weight, format_named
from dgpp.kernels.linear.arguments import check_linear, check_weight
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.product import leaves


def linear(x: jax.Array, w: Weight, layer: jax.Array, used: jax.Array) -> jax.Array:
    """float32 [R, N]; arguments, order and promise as in `dgpp.kernels.linear`."""
    return _leaves(x, w, layer, used, check_linear(x, w, layer, used))[0]


def linear_leaves(x: jax.Array, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges) -> jax.Array:
    """float32 [len(ranges), R, N]; arguments, order and promise as in `dgpp.kernels.linear`."""
    return _leaves(x, w, layer, used, check_linear(x, w, layer, used, ranges))


def _leaves(x: jax.Array, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges) -> jax.Array:
    lead = (layer,) if check_weight("linear", w) else ()
    return leaves(x, w.arrays, w.shape, format_named(w.format), lead, used, ranges)
