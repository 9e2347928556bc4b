"""gated_delta on a GPU: one launch for all segments, heads and rows, replays included."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dgpp.kernels.gpu.launch import Out, launch
from dgpp.kernels.recurrence import DeltaState
from dgpp.kernels.recurrence.arguments import check_gated_delta
from dgpp.kernels.recurrence.triton_step import segments
from dgpp.kernels.rings import write_ring

STRIP = 8  # columns of a head's state in one program: 4 for each of two groups of 16 lanes
WARPS = 1


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

    A batch holds one segment of a slot at most. dk and dv are powers of two, at least 16 and 8.
    """
    check_gated_delta(q, k, v, g, beta, state, layer, position, slot, commits, last, replay, used, key_index, zero)
    (rows, keys, dk), (_, values, dv) = q.shape, v.shape
    layers, slots, width = state.k.shape[:3]
    if dk & (dk - 1) or dv & (dv - 1) or dk < 16 or dv < STRIP:
        raise ValueError(f"gated_delta: dk = {dk} and dv = {dv} must be powers of two, at least 16 and {STRIP}")
    rings = (state.k, state.v, state.gates) if width else (k, v, g)
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
        commits.astype(jnp.int32),
        last,
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
    grid = (dv // STRIP, values, slots)
    o, committed = launch(segments, (*arguments, key_index), outs, grid, constants, warps=WARPS, stages=1)
    order = jnp.arange(rows, dtype=jnp.int32)
    o = jnp.where((order < used)[:, None, None], o, 0)
    if not width:
        return o, DeltaState(committed, state.k, state.v, state.gates)
    keep = (order < used) & ~commits & (last - order < width)
    gates = jnp.concatenate([g.reshape(rows, values, -1), beta[..., None]], axis=-1)
    written = (
        write_ring(ring, x, layer, slot, position, keep, (committed,), zero)
        for ring, x in ((state.k, k), (state.v, v), (state.gates, gates))
    )
    return o, DeltaState(committed, *written)
