"""gated_delta on a GPU: one launch for all segments, heads and rows, replays included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels.gpu.launch import Out, launch
from dgpp.kernels.linear.fed import Fed, Feed
from dgpp.kernels.norm.triton import gated_normed_keeping
from dgpp.kernels.recurrence import DeltaState, inputs
from dgpp.kernels.recurrence.arguments import check_gated_delta
from dgpp.kernels.recurrence.inputs import DeltaInputs
from dgpp.kernels.recurrence.keep import Keep
from dgpp.kernels.recurrence.triton_mixed import mixed_rows
from dgpp.kernels.recurrence.triton_step import segments
from dgpp.kernels.rows import Phase, Rows
from dgpp.kernels.triton_rings import write_ring

STRIP = 8  # columns of a head's state in one program: 4 for each of two groups of 16 lanes
WARPS = 1
HEADS = 4  # of one program that makes inputs, but
FEW = 16  # up to so many rows one, so that enough programs share the work


def gated_delta(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    g: jax.Array,
    beta: jax.Array,
    state: DeltaState,
    layer: jax.Array,
    position: jax.Array,
    slot: jax.Array,
    commits: jax.Array,
    last: jax.Array,
    replay: jax.Array,
    used: jax.Array,
    key_index: jax.Array,
    zero: jax.Array,
) -> tuple[jax.Array, DeltaState]:
    """(o float32 [R, V, dv], state); arguments, order and promise as in `dgpp.kernels.recurrence`.

    Padding rows are unspecified. A batch holds one segment of a slot at most. dk and dv are powers of two, at least 16
    and 8.
    """
    o, committed, keep = _stepped(
        q, k, v, g, beta, state, layer, position, slot, commits, last, replay, used, key_index, zero
    )
    return o, replace(state, s=committed) if keep is None else DeltaState(committed, *keep.alone(o))


def gated_delta_normed(
    made: DeltaInputs,
    z: jax.Array,
    state: DeltaState,
    state_layer: jax.Array,
    weight: Weight,
    layer: jax.Array,
    eps: float,
    act: str,
    rows: Rows,
    key_index: jax.Array,
    feeds: Sequence[Feed],
) -> tuple[jax.Array, jax.Array | Fed, DeltaState]:
    """(o, its gated norm, state); arguments as in `Kernels.gated_delta_normed`. The norm's kernel keeps the inputs."""
    commits = rows.phase != Phase.VERIFY
    o, committed, keep = _stepped(
        made.q, made.k, made.v, made.g, made.beta, state, state_layer, rows.position, rows.slot, commits, rows.last,
        rows.replay, rows.used, key_index, rows.zero,
    )  # fmt: skip
    y, kept = gated_normed_keeping(o, z, weight, layer, eps, act, rows, feeds, keep)
    return o, y, DeltaState(committed, *kept) if kept else replace(state, s=committed)


def _stepped(*given: Any) -> tuple[jax.Array, jax.Array, Keep | None]:
    """(o, the committed values, and what is left to be kept, if the state has rings) of the arguments of
    `gated_delta`."""
    check_gated_delta(*given)
    q, k, v, g, beta, state, layer, position, slot, commits, last, replay, used, key_index, _ = given
    (rows, keys, dk), (_, values, dv) = q.shape, v.shape
    layers, slots, width = state.k.shape[:3]
    if dk & (dk - 1) or dv & (dv - 1) or dk < 16 or dv < STRIP:
        raise ValueError(f"gated_delta: dk = {dk} and dv = {dv} must be powers of two, at least 16 and {STRIP}")
    rings = (state.k, state.v, state.gates)
    at = (layer, position, slot, commits.astype(jnp.int32), last)
    arguments = (q, k, v, g, beta, state.s, *(rings if width else (k, v, g)), *at, replay, used, key_index)
    sizes = {"L": layers, "S": slots, "W": width, "K": keys, "V": values, "DK": dk, "DV": dv}
    sizes["G"] = dk if g.ndim == 3 else 1
    o, committed = launch(
        segments,
        arguments,
        (Out((rows, values, dv), jnp.float32), Out(state.s.shape, jnp.float32, alias=5)),
        (dv // STRIP, values, min(rows, slots)),
        sizes | {"R": rows, "RPAD": 1 << (rows - 1).bit_length(), "BV": STRIP},
        warps=WARPS,
        stages=1,
    )
    if not width:
        return o, committed, None
    widths = {"KPAD": keys * dk, "VPAD": values * dv, "GPAD": values * (sizes["G"] + 1)}
    padded = {name: 1 << (size - 1).bit_length() for name, size in widths.items()}
    return o, committed, Keep((k, v, g, beta, *at, used), rings, sizes | padded)


def delta_inputs(
    qkv: jax.Array,
    a: jax.Array,
    b: jax.Array,
    w: Mapping[str, Weight],
    layer: jax.Array,
    ring: jax.Array,
    state_layer: jax.Array,
    rows: Rows,
    *,
    keys: int,
    dk: int,
) -> tuple[DeltaInputs, jax.Array]:
    """The inputs and the ring; arguments, order and bits as in `inputs`. Heads of other sizes than powers of two, or of
    different ones for keys and values, run as the reference does."""
    parts, count, channels = qkv.shape
    values = a.shape[-1]
    if dk & (dk - 1) or dk < 2 or channels != (2 * keys + values) * dk:
        return inputs.delta_inputs(qkv, a, b, w, layer, ring, state_layer, rows, keys=keys, dk=dk)
    weight = w["conv1d"]
    small = [w[name].arrays["values"] for name in ("conv1d", "A_log", "dt_bias")]
    heads = 1 if count <= FEW else min(HEADS, 1 << (2 * keys + values - 1).bit_length())
    bf16, f32 = jnp.bfloat16, jnp.float32
    keep = count + weight.shape[-1] - 1 <= ring.shape[2]
    outs = (
        Out((count, keys, dk), f32),
        Out((count, keys, dk), f32),
        Out((count, values, dk), bf16),
        Out((count, values), f32),
        Out((count, values), f32),
        Out((count, channels), bf16),
        Out((count, channels), bf16),
        Out(ring.shape, ring.dtype, alias=6) if keep else Out((1,), ring.dtype),
    )
    constants = {
        "LAYERS": small[1].size // values,
        "STATES": ring.shape[0],
        "S": ring.shape[1],
        "DEPTH": ring.shape[2],
        "WIDTH": weight.shape[-1],
        "PARTS": parts,
        "GATE_PARTS": a.shape[0],
        "R": count,
        "K": keys,
        "V": values,
        "VPAD": 1 << (values - 1).bit_length(),
        "DIM": dk,
        "ROOT": dk**-0.5,
        "HEADS": heads,
        "LEVELS": dk.bit_length() - 1,
        "KEEP": keep,
    }
    at = (rows.position, rows.slot)
    *made, kept = launch(
        mixed_rows,
        (qkv, a, b, *small, ring, weight.place(layer), state_layer, *at, rows.first, rows.used),
        outs,
        (count, -(-(2 * keys + values) // heads) + 1),
        constants,
        warps=4,
        stages=1,
    )
    found = DeltaInputs(*made)
    if keep:
        return found, kept
    return found, write_ring(ring, found.qkv, state_layer, *at, rows.last, rows.used, found.q)
