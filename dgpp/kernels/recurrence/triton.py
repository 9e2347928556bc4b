"""gated_delta on a GPU: one launch for all segments, heads and rows, replays included."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels.gpu.launch import Out, launch
from dgpp.kernels.recurrence import DeltaState, inputs
from dgpp.kernels.recurrence.arguments import check_gated_delta
from dgpp.kernels.recurrence.inputs import DeltaInputs
from dgpp.kernels.recurrence.triton_mixed import mixed_rows
from dgpp.kernels.recurrence.triton_step import keep_inputs, segments
from dgpp.kernels.rows import Rows
from dgpp.kernels.triton_rings import write_ring

STRIP = 8  # columns of a head's state in one program: 4 for each of two groups of 16 lanes
WARPS = 1
HEADS = 4  # of one program that makes inputs


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
    check_gated_delta(q, k, v, g, beta, state, layer, position, slot, commits, last, replay, used, key_index, zero)
    (rows, keys, dk), (_, values, dv) = q.shape, v.shape
    layers, slots, width = state.k.shape[:3]
    if dk & (dk - 1) or dv & (dv - 1) or dk < 16 or dv < STRIP:
        raise ValueError(f"gated_delta: dk = {dk} and dv = {dv} must be powers of two, at least 16 and {STRIP}")
    rings = (state.k, state.v, state.gates) if width else (k, v, g)
    bounds = (commits.astype(jnp.int32), last)
    arguments = (
        q,
        k,
        v,
        g,
        beta,
        state.s,
        *rings,
        layer,
        position,
        slot,
        *bounds,
        replay,
        used,
    )
    outs = (Out((rows, values, dv), jnp.float32), Out(state.s.shape, jnp.float32, alias=5))
    constants = {
        "R": rows,
        "RPAD": 1 << (rows - 1).bit_length(),
        "L": layers,
        "S": slots,
        "W": width,
        "K": keys,
        "V": values,
        "DK": dk,
        "DV": dv,
        "G": dk if g.ndim == 3 else 1,
        "BV": STRIP,
    }
    grid = (dv // STRIP, values, min(rows, slots))
    o, committed = launch(segments, (*arguments, key_index), outs, grid, constants, warps=WARPS, stages=1)
    if not width:
        return o, DeltaState(committed, state.k, state.v, state.gates)
    fresh = (k, v, g, beta, state.k, state.v, state.gates, layer, position, slot, *bounds, used, o)
    past = (state.k, state.v, state.gates)
    kept_outs = tuple(Out(ring.shape, ring.dtype, alias=4 + i) for i, ring in enumerate(past))
    sizes = {name: constants[name] for name in ("L", "S", "W", "K", "V", "DK", "DV", "G")}
    sizes |= {f"{name}PAD": 1 << (n - 1).bit_length() for name, n in (("K", keys * dk), ("V", values * dv))}
    sizes |= {"GPAD": 1 << (values * (constants["G"] + 1) - 1).bit_length()}
    kept = launch(keep_inputs, fresh, kept_outs, (rows,), sizes, warps=8, stages=1)
    return o, DeltaState(committed, *kept)


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
    heads = min(HEADS, 1 << (2 * keys + values - 1).bit_length())
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
