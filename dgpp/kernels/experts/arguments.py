"""The argument checks that every implementation of the experts' ops makes while tracing."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels.linear.arguments import check_ranges, check_scalars, check_weight
from dgpp.kernels.linear.fed import Fed
from dgpp.kernels.linear.ranges import Ranges


def check_grouped(
    x: jax.Array | Fed, experts: jax.Array, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges | None = None
) -> Ranges:
    """The K ranges to sum over: `ranges`, or all of K. Raises ValueError naming the argument that is wrong."""
    check_scalars("grouped_linear", layer=layer, used=used)
    if len(w.shape) != 3:
        raise ValueError(f"grouped_linear: w must have the logical shape [E, N, K], not {list(w.shape)}")
    check_weight("grouped_linear", w)
    k = w.shape[-1]
    if experts.ndim != 2 or experts.dtype != jnp.int32:
        raise ValueError(f"grouped_linear: experts must be int32 [R, E'], not {experts.dtype} of shape {experts.shape}")
    rows, chosen = experts.shape
    if x.dtype != jnp.bfloat16 or x.shape not in ((rows, k), (rows, chosen, k)):
        raise ValueError(
            f"grouped_linear: x must be bfloat16 [{rows}, {k}] or [{rows}, {chosen}, {k}], not {x.dtype} of shape "
            f"{x.shape}"
        )
    return ((0, k),) if ranges is None else check_ranges("grouped_linear_leaves", ranges, k)


def check_gated(weights: Sequence[Weight], layers: Sequence[jax.Array]) -> int:
    """I, the outputs of gate. Raises ValueError when the weights are not one [E, 2I, D] or two [E, I, D]."""
    shapes = [w.shape for w in weights]
    if len(shapes) != len(layers) or len(shapes) not in (1, 2) or any(shape != shapes[0] for shape in shapes):
        raise ValueError(
            "grouped_gated: weights must be gate and up of one shape [E, I, D], or both as one [E, 2I, D], each with "
            f"its layer, not {len(layers)} layers and {[list(shape) for shape in shapes]}"
        )
    if len(shapes) == 1 and shapes[0][-2] % 2:
        raise ValueError(f"grouped_gated: gate and up in one have an even number of rows, not {shapes[0][-2]}")
    return shapes[0][-2] * len(shapes) // 2


def check_weights_of(experts: jax.Array, weights: jax.Array) -> None:
    """Raises ValueError unless there is a floating-point weight for every chosen expert."""
    if weights.shape != experts.shape or not jnp.issubdtype(weights.dtype, jnp.floating):
        raise ValueError(
            f"grouped_down: weights must be floating point {list(experts.shape)}, one for every expert, not "
            f"{weights.dtype} of shape {weights.shape}"
        )
