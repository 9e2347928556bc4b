"""gated_delta with long prefills in chunks: matrix products over 64 rows in place of 64 steps.

A lever: the sums of a chunk are in no promised order, and where chunks begin depends on how a prompt is cut, so a row's
bits are not those of the step form (differences are of the size of float32 roundings). Segments that are shorter than a
chunk, or that verify, and replays take the step form.

Within a chunk, with G the running sum of g and D[i, j] = exp(G_i - G_j) for j <= i: A = strictly lower (beta_i k_i k_j)
D, (I + A) U = beta v, (I + A) W = beta k exp(G); then v' = U - W S, o = (q exp(G)) S + ((q k) D) v', and
S = S exp(G_last) + (k exp(G_last - G))^T v'. Source: "Gated Delta Networks" (arXiv:2412.06464), section 3.3.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular

from dgpp.kernels.recurrence import DeltaState, reference

CHUNK = 64

einsum = partial(jnp.einsum, precision=lax.Precision.HIGHEST)


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
    """(o float32 [R, V, dv], state); arguments as in `dgpp.kernels.recurrence`, without its promise.

    Raises ValueError for a decay per key channel.
    """
    if g.ndim == 3:
        raise ValueError("gated_delta in chunks: one decay per head is supported, not one per key channel")
    rows = q.shape[0]
    if rows < CHUNK:
        return reference.gated_delta(
            q, k, v, g, beta, state, layer, position, slot, commits, last, replay, used, key_index, zero
        )
    order = jnp.arange(rows, dtype=jnp.int32)
    long = _is_long(order, commits, last, used)
    # The step form sees long segments as padding of its own batch: rows that neither commit nor keep anything.
    stepped, held = reference.gated_delta(
        q, k, v, g, beta, state, layer, position, slot, commits, last, replay, used, key_index, zero, skip=long
    )
    padded = [jnp.pad(x, [(0, CHUNK)] + [(0, 0)] * (x.ndim - 1)) for x in (q, k, v.astype(jnp.float32), g, beta)]

    def segment(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        first, committed, o = carry
        at = (layer, slot[first], 0, 0, 0)
        stop = last[first] + 1
        s = lax.dynamic_slice(committed, at, (1, 1, *committed.shape[2:]))[0, 0]

        def chunk(c: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            s, o = carry
            start = first + c * CHUNK
            part = [lax.dynamic_slice_in_dim(x, start, CHUNK) for x in padded]
            s, out = _chunk(s, part, start + jnp.arange(CHUNK) < stop, key_index)
            return s, lax.dynamic_update_slice_in_dim(o, out, start, 0)

        count = jnp.where(long[first], -(-(stop - first) // CHUNK), 0)
        s, o = lax.fori_loop(0, count, chunk, (s, o))
        return stop, lax.dynamic_update_slice(committed, s[None, None], at), o

    start = (jnp.int32(0), held.s, jnp.zeros((rows + CHUNK, *v.shape[1:]), jnp.float32))
    _, committed, chunked = lax.while_loop(lambda carry: carry[0] < jnp.minimum(used, rows), segment, start)
    o = jnp.where((long & (order < used))[:, None, None], chunked[:rows], stepped)
    return o, DeltaState(committed, held.k, held.v, held.gates)


def _is_long(order: jax.Array, commits: jax.Array, last: jax.Array, used: jax.Array) -> jax.Array:
    """bool [R]: rows of segments of at least one chunk that commit; a segment commits all of its rows or none."""
    length = jnp.zeros_like(last).at[last].add(jnp.where(order < used, 1, 0))
    return commits & (length[last] >= CHUNK)


def _chunk(
    s: jax.Array,  # float32 [V, dk, dv]
    part: list[jax.Array],  # q, k [C, K, dk], v [C, V, dv], g, beta [C, V]
    real: jax.Array,  # bool [C]: the others leave the state alone
    key_index: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """(the state after the rows of a chunk; what they read, float32 [C, V, dv])."""
    q, k, v, g, beta = part
    q, k = (jnp.moveaxis(x[:, key_index], 0, 1) for x in (q, k))  # [V, C, dk]
    v = jnp.moveaxis(v, 0, 1)
    g, beta = (jnp.where(real[None], x.T, 0) for x in (g, beta))  # [V, C]
    total = jnp.cumsum(g, axis=1)
    lower = jnp.tril(jnp.ones((CHUNK, CHUNK), bool))
    decay = jnp.exp(jnp.where(lower, total[:, :, None] - total[:, None, :], -jnp.inf))
    within = jnp.tril(einsum("vid,vjd->vij", beta[..., None] * k, k) * decay, -1) + jnp.eye(CHUNK)
    solve = partial(solve_triangular, within, lower=True, unit_diagonal=True)
    u, w = solve(beta[..., None] * v), solve((beta * jnp.exp(total))[..., None] * k)
    fresh = u - einsum("vid,vde->vie", w, s)
    out = einsum("vid,vde->vie", q * jnp.exp(total)[..., None], s)
    out = out + einsum("vij,vje->vie", einsum("vid,vjd->vij", q, k) * decay, fresh)
    left = jnp.exp(total[:, -1:] - total)[..., None]
    s = s * jnp.exp(total[:, -1])[:, None, None] + einsum("vid,vie->vde", k * left, fresh)
    return s, jnp.moveaxis(out, 1, 0)
