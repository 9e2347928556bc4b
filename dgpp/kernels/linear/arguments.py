"""The argument checks that every implementation of linear makes while tracing."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dgpp.formats import Weight, format_named
from dgpp.kernels.linear.fed import Fed
from dgpp.kernels.linear.ranges import Ranges


def check_linear(
    x: jax.Array | Fed, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges | None = None
) -> Ranges:
    """The K ranges to sum over: `ranges`, or all of K. Raises ValueError naming the argument that is wrong."""
    if len(w.shape) != 2:
        raise ValueError(f"linear: w must have the logical shape [N, K], not {list(w.shape)}")
    check_weight("linear", w)
    if x.ndim != 2 or x.dtype != jnp.bfloat16:
        raise ValueError(f"linear: x must be bfloat16 [R, K], not {x.dtype} of shape {x.shape}")
    k = w.shape[-1]
    if x.shape[1] != k:
        raise ValueError(f"linear: x has K = {x.shape[1]} and w has K = {k}")
    check_scalars("linear", layer=layer, used=used)
    return ((0, k),) if ranges is None else check_ranges("linear_leaves", ranges, k)


def check_weight(op: str, w: Weight) -> bool:
    """Whether the layers of `w` are stacked. Raises ValueError naming the array that does not fit its format."""
    format = format_named(w.format)
    if not format.exact_in:
        raise ValueError(f"{op}: a weight of format {w.format!r} has no exact 16-bit operand")
    try:
        format.fits(w.arrays, w.shape)
    except ValueError as error:
        raise ValueError(f"{op}: w: {error}") from None
    payload, packed = next(iter(format.arrays(w.shape).items()))
    extra = w.arrays[payload].ndim - len(packed.shape)
    if extra not in (0, 1):
        raise ValueError(f"{op}: w has {extra} axes in front of its logical shape {list(w.shape)}; one is for layers")
    return extra == 1


def check_scalars(op: str, **scalars: jax.Array) -> None:
    """Raises ValueError naming the first that is not an int32 scalar."""
    for name, scalar in scalars.items():
        if jnp.shape(scalar) != () or jnp.asarray(scalar).dtype != jnp.int32:
            raise ValueError(f"{op}: {name} must be an int32 scalar, not {scalar!r}")


def check_ranges(op: str, ranges: Ranges, k: int) -> Ranges:
    """The ranges as pairs of ints. Raises ValueError when there are none or one is no part of K."""
    if not ranges:
        raise ValueError(f"{op}: ranges is empty")
    for start, stop in ranges:
        if not 0 <= start < stop <= k:
            raise ValueError(f"{op}: ranges has ({start}, {stop}), which is no part of K = {k}")
    return tuple((int(start), int(stop)) for start, stop in ranges)
