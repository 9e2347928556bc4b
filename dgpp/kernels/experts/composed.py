"""The experts' ops that are made of other ones: the activation between the products, and the fold behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels.experts.arguments import check_gated, check_weights_of
from dgpp.kernels.gated.reference import swiglu_bf16
from dgpp.kernels.linear.fed import Feed
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.rounding import rounded

Product = Callable[..., jax.Array]


def both(
    grouped_linear: Product,
    x: Any,  # whatever the kind takes as rows
    experts: jax.Array,
    weights: Sequence[Weight],
    layers: Sequence[jax.Array],
    used: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """(gate, up) float32 [R, E', I] of the chosen experts, each or both by `grouped_linear`."""
    check_gated(weights, layers)
    found = [grouped_linear(x, experts, w, layer, used) for w, layer in zip(weights, layers, strict=True)]
    gate, up = found if len(found) == 2 else jnp.split(found[0], 2, axis=-1)
    return gate, up


def gated(
    grouped_linear: Product,
    x: jax.Array,
    experts: jax.Array,
    weights: Sequence[Weight],
    layers: Sequence[jax.Array],
    used: jax.Array,
    zero: jax.Array,
    feeds: Sequence[Feed] = (),
) -> jax.Array:
    """`grouped_gated` of `dgpp.kernels.experts` over a kind's own `grouped_linear`."""
    return swiglu_bf16(*both(grouped_linear, x, experts, weights, layers, used), zero)


def down(
    grouped_linear_leaves: Product,
    act: jax.Array,
    experts: jax.Array,
    weights: jax.Array,
    w: Weight,
    layer: jax.Array,
    used: jax.Array,
    ranges: Ranges,
    zero: jax.Array,
) -> jax.Array:
    """`grouped_down` of `dgpp.kernels.experts` over a kind's own `grouped_linear_leaves`."""
    check_weights_of(experts, weights)
    each = grouped_linear_leaves(act, experts, w, layer, used, ranges)  # [leaves, R, E', D]
    factor = weights.astype(jnp.float32)
    total = jnp.zeros((each.shape[0], each.shape[1], each.shape[3]), jnp.float32)
    for j in range(experts.shape[1]):
        total = total + rounded(each[:, :, j] * factor[:, j, None], zero)
    return total
