"""gated_delta in plain JAX: the order of `dgpp.kernels.recurrence`, written out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from dgpp.kernels.lanes import LANES, tree
from dgpp.kernels.recurrence import DeltaState
from dgpp.kernels.recurrence.arguments import check_gated_delta
from dgpp.kernels.rings import of_layer, write_ring
from dgpp.kernels.rounding import exp_f32, rounded


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
    skip: jax.Array | None = None,
) -> tuple[jax.Array, DeltaState]:
    """(o float32 [R, V, dv], state); arguments, order and promise as in `dgpp.kernels.recurrence`.

    Of segments whose rows are in `skip` (bool [R]) only the replay is applied and committed; their o is +0.
    """
    check_gated_delta(q, k, v, g, beta, state, layer, position, slot, commits, last, replay, used, key_index, zero)
    rows, width = q.shape[0], state.k.shape[2]
    order = jnp.arange(rows, dtype=jnp.int32)
    past = [of_layer(ring, layer) for ring in (state.k, state.v, state.gates)]
    gates = jnp.concatenate([g.reshape(rows, beta.shape[1], -1), beta[..., None]], axis=-1)

    def advance(r: jax.Array, s: jax.Array) -> jax.Array:  # the state after row r of the batch
        return advance_state(s, k[r][key_index], v[r], gates[r], zero)

    def advance_with_output(r: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        s, o = carry
        s = advance(r, s)
        return s, o.at[r].set(over_keys(s, q[r][key_index], zero))

    def segment(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        first, committed, o = carry
        mine, start, stop = slot[first], position[first], last[first] + 1
        at = (layer, mine, 0, 0, 0)
        s = lax.dynamic_slice(committed, at, (1, 1, *committed.shape[2:]))[0, 0]
        s = jnp.where(start == 0, 0, s)
        if width:

            def again(p: jax.Array, s: jax.Array) -> jax.Array:
                past_k, past_v, past_gates = (ring[mine, p % width] for ring in past)
                return advance_state(s, past_k[key_index], past_v, past_gates, zero)

            s = lax.fori_loop(start - replay[mine], start, again, s)
        border = first + jnp.sum(commits & (order >= first) & (order < stop), dtype=jnp.int32)
        begin, end = first, stop
        if skip is not None:
            begin, border, end = (jnp.where(skip[first], first, row) for row in (first, border, stop))
        s, o = lax.fori_loop(begin, border, advance_with_output, (s, o))
        committed = lax.dynamic_update_slice(committed, s[None, None], at)
        _, o = lax.fori_loop(border, end, advance_with_output, (s, o))
        return stop, committed, o

    start = (jnp.int32(0), state.s, jnp.zeros(v.shape, jnp.float32))
    _, committed, o = lax.while_loop(lambda carry: carry[0] < jnp.minimum(used, rows), segment, start)
    if not width:
        return o, DeltaState(committed, state.k, state.v, state.gates)
    keep = (order < used) & ~commits & (last - order < width)
    rings = (
        write_ring(ring, x, layer, slot, position, keep, (committed,), zero)
        for ring, x in ((state.k, k), (state.v, v), (state.gates, gates))
    )
    return o, DeltaState(committed, *rings)


def advance_state(s: jax.Array, k: jax.Array, v: jax.Array, gates: jax.Array, zero: jax.Array) -> jax.Array:
    """The state [V, dk, dv] after one more row: k float32 [V, dk], v [V, dv], gates float32 [V, G + 1]."""
    decay, beta = exp_f32(gates[:, :-1], zero), gates[:, -1:]
    s = rounded(s * decay[:, :, None], zero)
    u = rounded((v.astype(jnp.float32) - over_keys(s, k, zero)) * beta, zero)
    return s + rounded(k[:, :, None] * u[:, None, :], zero)


def over_keys(s: jax.Array, x: jax.Array, zero: jax.Array) -> jax.Array:
    """sum over i of rounded(S[i, j] * x[i]): [V, dk, dv] and [V, dk] -> [V, dv], in 16 lanes over i and the tree."""
    products = rounded(s * x[:, :, None], zero)
    fill = -products.shape[1] % LANES
    products = jnp.pad(products, ((0, 0), (0, fill), (0, 0)))
    lanes = jnp.zeros((s.shape[0], LANES, s.shape[2]), jnp.float32)
    for i in range(0, products.shape[1], LANES):
        lanes = lanes + products[:, i : i + LANES]
    return tree(jnp.moveaxis(lanes, 1, 2))
