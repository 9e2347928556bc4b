"""gated on a GPU: one launch for all rows, which also leaves the operand of the matrices that read them."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from dgpp.kernels.gated.triton_gated import gated_rows
from dgpp.kernels.gpu.launch import Out, launch
from dgpp.kernels.linear.fed import Fed, Feed
from dgpp.kernels.linear.parts import summed
from dgpp.kernels.linear.triton_feed import SMALL, plan, shared
from dgpp.kernels.rows import Rows

WARPS = 8
SMALL_WARPS = 4  # of a program of SMALL columns
KINDS = ("opened", "once", "thrice")
"""The activations, in the numbering of `triton_gated`."""


def swiglu_parts(
    gate: jax.Array, up: jax.Array, rows: Rows, feeds: Sequence[Feed] = (), *, thrice: bool = False
) -> jax.Array | Fed:
    """bf16 [R, F]; arguments, order and bits as in `dgpp.kernels.gated`."""
    if gate.shape[0] != up.shape[0]:  # of different formats
        gate, up = summed(gate)[None], summed(up)[None]
    return _gated(gate, up, gate.shape[0], gate.shape[1:], "thrice" if thrice else "once", rows, feeds)


def opened(mix: jax.Array, gate: jax.Array, rows: Rows, feeds: Sequence[Feed] = ()) -> jax.Array | Fed:
    """bf16 [R, H * Dh]; arguments, order and bits as in `dgpp.kernels.gated`."""
    count, heads, dim = mix.shape
    return _gated(mix, gate, 1, (count, heads * dim), "opened", rows, feeds)


def _gated(
    first: jax.Array,
    second: jax.Array,
    parts: int,
    shape: tuple[int, ...],
    kind: str,
    rows: Rows,
    feeds: Sequence[Feed],
) -> jax.Array | Fed:
    count, columns = shape
    given = plan(feeds, count, ((0, columns),), shared(count))
    out, *operand = launch(
        gated_rows,
        (first, second, given.bounds, rows.used),
        (Out((count, columns), jnp.bfloat16), *given.outs),
        given.grid,
        {"KIND": KINDS.index(kind), "PARTS": parts, "R": count, "F": columns} | given.constants,
        warps=WARPS if given.block > SMALL else SMALL_WARPS,
        stages=1,
    )
    return given.fed(out, *operand)
