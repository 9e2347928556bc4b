"""norm on a GPU: one launch for all rows, which also leaves the operand of the matrices that read them."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.formats import Weight
from dgpp.kernels.gpu.launch import Out, launch
from dgpp.kernels.linear.fed import Fed, Feed
from dgpp.kernels.linear.triton_feed import plan
from dgpp.kernels.norm import reference
from dgpp.kernels.norm.triton_norm import gated_heads, normed_rows
from dgpp.kernels.rows import Rows

WARPS = 8
LARGEST = 1 << 14  # columns that one program holds


def normed(
    x: jax.Array, weight: Weight, layer: jax.Array, eps: float, rows: Rows, *, centred: bool, feeds: Sequence[Feed] = ()
) -> jax.Array | Fed:
    """bf16 [R, D]; arguments, order and bits as in `dgpp.kernels.norm`. Wider rows than LARGEST run as the reference
    does."""
    count, d = x.shape
    if d > LARGEST:
        return reference.normed(x, weight, layer, eps, rows, centred=centred, feeds=feeds)
    given = plan(feeds, count, ((0, d),))
    levels, widest = (d - 1).bit_length(), max(stop - start for start, stop in given.ranges)
    values = weight.arrays["values"]
    out, *operand = launch(
        normed_rows,
        (x, values, weight.place(layer), jnp.asarray(np.array(given.ranges, np.int32)), rows.used),
        (Out((count, d), jnp.bfloat16), *given.outs),
        (given.rows, len(given.ranges)),
        {"LAYERS": values.size // d, "R": count, "D": d, "EPS": eps, "CENTRED": centred}
        | given.constants
        | {"BLOCK": 1 << levels, "LEVELS": levels, "WIDTH": 1 << (widest - 1).bit_length()},
        warps=WARPS,
        stages=1,
    )
    return given.fed(out, *operand)


def gated_normed(
    o: jax.Array,
    z: jax.Array,
    weight: Weight,
    layer: jax.Array,
    eps: float,
    act: str,
    rows: Rows,
    feeds: Sequence[Feed] = (),
) -> jax.Array | Fed:
    """bf16 [R, V * dv]; arguments, order and bits as in `dgpp.kernels.norm`. Heads whose size is no power of two, and
    leaves that cut them, run as the reference does."""
    count, heads, dv = o.shape
    given = plan(feeds, count, ((0, heads * dv),))
    largest = max(stop - start for start, stop in given.ranges)
    cut = any(edge % dv for pair in given.ranges for edge in pair)
    if dv & (dv - 1) or dv < 2 or cut or largest > LARGEST or act not in ("sigmoid", "swish"):
        return reference.gated_normed(o, z, weight, layer, eps, act, rows, feeds)
    values = weight.arrays["values"]
    out, *operand = launch(
        gated_heads,
        (o, z, values, weight.place(layer), jnp.asarray(np.array(given.ranges, np.int32)), rows.used),
        (Out((count, heads * dv), jnp.bfloat16), *given.outs),
        (given.rows, len(given.ranges)),
        {"LAYERS": values.size // dv, "PARTS": z.shape[0], "R": count, "V": heads, "DV": dv, "EPS": eps}
        | {"SWISH": act == "swish"}
        | given.constants
        | {"HEADS": 1 << (largest // dv - 1).bit_length(), "LEVELS": dv.bit_length() - 1},
        warps=WARPS,
        stages=1,
    )
    return given.fed(out, *operand)
