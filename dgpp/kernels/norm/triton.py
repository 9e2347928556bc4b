"""norm on a GPU: one launch for all rows, which also leaves the operand of the matrices that read them."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels.gpu.launch import ASSEMBLY, Out, launch
from dgpp.kernels.leaves import folded
from dgpp.kernels.linear.fed import Fed, Feed
from dgpp.kernels.linear.triton_feed import plan, shared
from dgpp.kernels.norm import reference
from dgpp.kernels.norm.triton_norm import gated_heads, normed_rows
from dgpp.kernels.recurrence.keep import Keep
from dgpp.kernels.rows import Rows
from dgpp.kernels.stored import add_bf16

WARPS = 4
MOST_ROWS = 64
HALVINGS = 3  # of a row at most, between numbers that a thread holds,
SPAN = 256  # and the columns that then lie across a warp
LARGEST = 1 << 14  # columns that one program holds


def normed(
    x: jax.Array, weight: Weight, layer: jax.Array, eps: float, rows: Rows, *, centred: bool, feeds: Sequence[Feed] = ()
) -> jax.Array | Fed:
    """bf16 [R, D]; arguments, order and bits as in `dgpp.kernels.norm`. Wider rows than LARGEST run as the reference
    does."""
    if x.shape[-1] > LARGEST:
        return reference.normed(x, weight, layer, eps, rows, centred=centred, feeds=feeds)
    return _normed(x, None, weight, layer, eps, rows, centred, feeds)[1]


def added_normed(
    h: jax.Array,
    leaves: jax.Array,
    weight: Weight,
    layer: jax.Array,
    eps: float,
    rows: Rows,
    *,
    centred: bool,
    feeds: Sequence[Feed] = (),
) -> tuple[jax.Array, jax.Array | Fed]:
    """(bf16 [R, D], bf16 [R, D]); arguments, order and bits as in `dgpp.kernels.norm`. One launch for up to MOST_ROWS
    rows; every program of a row adds all of it, so with more rows XLA adds first."""
    if h.shape[-1] > LARGEST or h.shape[0] > MOST_ROWS:
        total = add_bf16(h, folded(leaves))
        return total, normed(total, weight, layer, eps, rows, centred=centred, feeds=feeds)
    return _normed(h, leaves, weight, layer, eps, rows, centred, feeds)


def _normed(
    h: jax.Array,
    leaves: jax.Array | None,
    weight: Weight,
    layer: jax.Array,
    eps: float,
    rows: Rows,
    centred: bool,
    feeds: Sequence[Feed],
) -> tuple[jax.Array, jax.Array | Fed]:
    """(h with the fold of the leaves, if there are any; its norm)."""
    count, d = h.shape
    given = plan(feeds, count, ((0, d),))
    all_levels = (d - 1).bit_length()
    levels = max(all_levels - HALVINGS, min(all_levels, (WARPS * SPAN).bit_length() - 1))
    values = weight.arrays["values"]
    sums = Out((1,), h.dtype) if leaves is None else Out(h.shape, h.dtype)
    fixed = (weight.place(layer), given.bounds, rows.used)
    total, out, *operand = launch(
        normed_rows,
        (h, h if leaves is None else leaves, values, *fixed),
        (sums, Out(h.shape, h.dtype), *given.outs),
        given.grid,
        {"LAYERS": values.size // d, "R": count, "D": d, "LEAVES": leaves is not None, "EPS": eps, "CENTRED": centred}
        | given.constants
        | {"CHUNK": 1 << levels, "LEVELS": levels, "SPAN": min(SPAN, 1 << levels), "WARPS": WARPS, "ASM": ASSEMBLY},
        warps=WARPS,
        stages=1,
    )
    return h if leaves is None else total, given.fed(out, *operand)


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
    return gated_normed_keeping(o, z, weight, layer, eps, act, rows, feeds)[0]


def gated_normed_keeping(
    o: jax.Array,
    z: jax.Array,
    weight: Weight,
    layer: jax.Array,
    eps: float,
    act: str,
    rows: Rows,
    feeds: Sequence[Feed] = (),
    keep: Keep | None = None,
) -> tuple[jax.Array | Fed, tuple[jax.Array, ...]]:
    """(`gated_normed`, the rings of `keep`)."""
    count, heads, dv = o.shape
    given = plan(feeds, count, ((0, heads * dv),), shared(count))
    cut = any(edge % dv for pair in given.ranges for edge in pair)
    if dv & (dv - 1) or dv < 2 or cut or dv > given.block or act not in ("sigmoid", "swish"):
        y = reference.gated_normed(o, z, weight, layer, eps, act, rows, feeds)
        return y, keep.alone(o) if keep else ()
    values = weight.arrays["values"]
    arguments: list[jax.Array] = [o, z, values, weight.place(layer), given.bounds, rows.used]
    if keep is None:  # then nobody reads or writes what stands for it
        names = ("L", "S", "W", "K", "DK", "G", "KPAD", "VPAD", "GPAD")
        arguments += [rows.used] * 12
        rings, sizes = [Out((1,), jnp.float32)] * 3, dict.fromkeys(names, 1)
    else:
        arguments += keep.fresh[:-1]
        rings, sizes = [*keep.outs(len(arguments))], keep.constants
        arguments += keep.rings
    out, *operand, new_k, new_v, new_g = launch(
        gated_heads,
        arguments,
        (Out((count, heads * dv), jnp.bfloat16), *given.outs, *rings),
        given.grid,
        {"LAYERS": values.size // dv, "PARTS": z.shape[0], "R": count, "V": heads, "DV": dv, "EPS": eps}
        | {"SWISH": act == "swish", "LEVELS": dv.bit_length() - 1, "KEEP": keep is not None}
        | given.constants
        | sizes,
        warps=WARPS,
        stages=1,
    )
    return given.fed(out, *operand), (new_k, new_v, new_g) if keep else ()
