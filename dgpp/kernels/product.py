"""Rows times one matrix of any format in plain JAX: the order of `dgpp.kernels.linear`, written out.

The matrix is decoded in blocks of rows, inside the loop that uses them; the whole of it never exists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dgpp.formats import Activations, Format, Shape
from dgpp.formats.arrays import at
from dgpp.formats.reference import partial
from dgpp.kernels.lanes import LANES, tree
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.rounding import rounded

COLUMNS = 64  # rows of the weight in work at a time: bounds what is held to [R, COLUMNS, LANES] float32
UNROLLED = 16  # lane steps of a sum that are written out instead of looped over


def leaves(
    x: jax.Array,  # bfloat16 [R, K]
    arrays: Mapping[str, Any],
    shape: Shape,  # (N, K)
    format: Format,
    lead: Sequence[jax.Array],  # int32 scalars: the layer and the expert, as far as the arrays have such axes
    used: jax.Array,  # int32 scalar known only at run time
    ranges: Ranges,
) -> jax.Array:
    """float32 [len(ranges), R, N], +0 from row `used` on; the parts of the product as in `dgpp.formats.base.Format`."""
    rows, (n, k) = x.shape[0], shape
    columns = min(COLUMNS, n)
    zero = used >> 31  # `used` is never negative, which the compiler does not know
    size = None if format.group is None else partial(format.group, ranges, k)
    # The payload is read block by block; what else the format has is small.
    payload = next(iter(format.arrays(shape)))
    one = {name: at(array, lead) for name, array in arrays.items() if name != payload}
    a = format.prepare(x, one, shape)
    a = a._replace(values=a.values.astype(jnp.float32))

    def block(i: jax.Array, out: jax.Array) -> jax.Array:
        # The last block is moved back to end at N; what it computes twice has the same bits both times.
        first = jnp.minimum(i * columns, n - columns)
        part = format.rows(arrays, shape, first, columns, lead)
        w = format.operand(part, shape)
        if size is None:
            sums = [_lane_dot(a.values, w, start, stop - start) for start, stop in ranges]
        else:
            scales = format.scales(part, shape)
            sums = [_group_sum(a, w, scales, pair, size, format.group or 1, zero) for pair in ranges]
        return lax.dynamic_update_slice(out, jnp.stack(sums), (0, 0, first))

    out = jnp.zeros((len(ranges), rows, n), jnp.float32)
    out = lax.fori_loop(0, -(-n // columns), block, out)
    out = rounded(format.epilogue(out, one, shape), zero)
    return jnp.where(jnp.arange(rows)[None, :, None] < used, out, 0)


def _group_sum(
    a: Activations,
    w: jax.Array,  # [C, K]
    scales: jax.Array,  # float32 [C, ceil(K / group)]
    pair: tuple[int, int],
    size: int,
    group: int,
    zero: jax.Array,
) -> jax.Array:
    """float32 [R, C]: finished sums over `size` elements each, times their factor, added in ascending order."""
    start, stop = pair

    def add(s: Any, length: int, acc: jax.Array) -> jax.Array:
        factor = lax.dynamic_slice_in_dim(scales, s // group, 1, 1)[:, 0][None, :]
        if a.scales is not None:
            factor = rounded(factor * lax.dynamic_slice_in_dim(a.scales, s // group, 1, 1), zero)
        return acc + rounded(_lane_dot(a.values, w, s, length) * factor, zero)

    whole = (stop - start) // size
    acc = jnp.zeros((a.values.shape[0], w.shape[0]), jnp.float32)
    acc = lax.fori_loop(0, whole, lambda i, acc: add(start + i * size, size, acc), acc)
    rest = start + whole * size
    return add(rest, stop - rest, acc) if rest < stop else acc


def _lane_dot(x: jax.Array, w: jax.Array, start: Any, length: int) -> jax.Array:
    """float32 [R, C]: the sum over K in [start, start + length) of x [R, K] and w [C, K]; `start` may be traced."""

    def add(acc: jax.Array, at: Any, width: int) -> jax.Array:
        fill = ((0, 0), (0, LANES - width))
        x16, w16 = (jnp.pad(lax.dynamic_slice_in_dim(m, at, width, 1), fill) for m in (x, w))
        return acc + x16[:, None, :] * w16[None, :, :]

    whole = length // LANES
    acc = jnp.zeros((x.shape[0], w.shape[0], LANES), jnp.float32)
    if whole <= UNROLLED:
        for j in range(whole):
            acc = add(acc, start + LANES * j, LANES)
    else:
        acc = lax.fori_loop(0, whole, lambda j, acc: add(acc, start + LANES * j, LANES), acc)
    rest = length - LANES * whole
    return tree(add(acc, start + LANES * whole, rest) if rest else acc)
