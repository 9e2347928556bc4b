"""sparse attention in plain JAX: the order of `dgpp.kernels.sparse_attention`, written out."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from dgpp.kernels.attention.arguments import Cache, check_attention, front_of
from dgpp.kernels.attention.reference import attend_page, page_of, stored, write_planes
from dgpp.kernels.lanes import LANES, as_bits, tree, widened
from dgpp.kernels.rounding import divided
from dgpp.kernels.sparse_attention.arguments import check_blocks, check_index


def index_scores(
    q: jax.Array,
    index: jax.Array,
    layer: jax.Array,
    page_table: jax.Array,
    position: jax.Array,
    slot: jax.Array,
    used: jax.Array,
    zero: jax.Array,
    *,
    block: int,
) -> jax.Array:
    """float32 [R, N]; arguments, order and promise as in `dgpp.kernels.sparse_attention`."""
    check_index(q, index, layer, page_table, position, slot, used, zero)
    rows, _, dim = q.shape
    each = index.shape[2]
    root = jnp.float32(math.sqrt(dim))
    queries = q.astype(jnp.float32)

    def score(row: jax.Array, out: jax.Array) -> jax.Array:
        complete = jnp.where((row < used) & (position[row] >= 0), (position[row] + 1) // block, 0)

        def walk(j: jax.Array, out: jax.Array) -> jax.Array:
            at = (layer, page_table[jnp.maximum(slot[row], 0), j], 0, 0)
            keys = _values(index, at, (1, 1, each, dim))[0, 0]
            dots = _lane_dots(queries[row], keys)  # [E, H']
            dots = jnp.where(dots <= 0, 0, dots)  # NaN stays
            total = dots[:, 0]
            for head in range(1, dots.shape[1]):
                total = total + dots[:, head]
            scores = jnp.where(j * each + jnp.arange(each) < complete, divided(total, root), -jnp.inf)
            return lax.dynamic_update_slice(out, scores[None], (row, j * each))

        return lax.fori_loop(0, -(-complete // each), walk, out)

    empty = jnp.full((rows, page_table.shape[1] * each), -jnp.inf, jnp.float32)
    return lax.fori_loop(0, rows, score, empty)


def select_blocks(scores: jax.Array, count: int) -> jax.Array:
    """int32 [R, min(count, N)]; order as in `dgpp.kernels.sparse_attention`."""
    blocks = scores.shape[1]
    values, chosen = lax.top_k(scores, min(count, blocks))  # of equal values the lower index comes first
    return jnp.sort(jnp.where(values == -jnp.inf, blocks, chosen).astype(jnp.int32), axis=-1)


def sparse_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    cache_k: Cache,
    cache_v: Cache,
    layer: jax.Array,
    page_table: jax.Array,
    position: jax.Array,
    slot: jax.Array,
    kv_index: jax.Array,
    blocks: jax.Array,
    used: jax.Array,
    zero: jax.Array,
    *,
    scale: float,
    block: int,
) -> tuple[jax.Array, Cache, Cache]:
    """(out float32 [R, H, DV], cache_k, cache_v); arguments and order as in `dgpp.kernels.sparse_attention`."""
    check_attention(q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, used, zero)
    page = front_of(cache_k)[2]
    check_blocks(blocks, q.shape[0], block, page)
    live, last, planes = write_planes(k, v, cache_k, cache_v, layer, page_table, position, slot, used)
    queries, selected = widened(as_bits(q)), selection(blocks, page_table.shape[1] * page // block)

    def attend(row: jax.Array, out: jax.Array) -> jax.Array:
        def walk(j: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            token = j * page + jnp.arange(page)
            valid = lax.dynamic_slice(selected, (row, j * page // block), (1, page // block))[0].repeat(block)
            valid |= token >= (last[row] + 1) // block * block
            valid &= token <= last[row]

            def attended() -> tuple[jax.Array, ...]:
                keys, values = page_of(planes, layer, page_table[slot[row], j], kv_index)
                return attend_page(queries[row], keys, values, valid, scale, zero, *state)

            return lax.cond(valid.any(), attended, lambda: state)

        heads, dim_v = out.shape[1:]
        start = (jnp.full(heads, -jnp.inf), jnp.zeros(heads), jnp.zeros((heads, dim_v)))
        count = jnp.where(live[row], last[row] // page + 1, 0)
        _, length, acc = lax.fori_loop(0, count, walk, start)
        return out.at[row].set(jnp.where(live[row], divided(acc, length[:, None]), 0))

    out = lax.fori_loop(0, q.shape[0], attend, jnp.zeros((*q.shape[:2], v.shape[-1]), jnp.float32))
    return out, *(stored(plane) for plane in planes)


def selection(blocks: jax.Array, count: int) -> jax.Array:
    """bool [R, count]: which blocks a row has among its `blocks`."""
    row = jnp.arange(blocks.shape[0])[:, None]
    chosen = jnp.where(blocks < 0, count, blocks)
    return jnp.zeros((blocks.shape[0], count), bool).at[row, chosen].set(True, mode="drop")


def _values(plane: jax.Array, at: tuple[jax.Array | int, ...], size: tuple[int, ...]) -> jax.Array:
    """A part of a plane as float32, cut as integers where it is bfloat16."""
    if plane.dtype == jnp.bfloat16:
        return widened(lax.dynamic_slice(as_bits(plane), at, size))
    return lax.dynamic_slice(plane, at, size)


def _lane_dots(q: jax.Array, keys: jax.Array) -> jax.Array:
    """float32 [E, H]: the dots of q [H, D] and keys [E, D] in 16 lanes and the tree."""
    fill = -q.shape[1] % LANES
    q, keys = jnp.pad(q, ((0, 0), (0, fill))), jnp.pad(keys, ((0, 0), (0, fill)))

    def add(i: jax.Array, lanes: jax.Array) -> jax.Array:
        q16, k16 = (lax.dynamic_slice_in_dim(x, LANES * i, LANES, axis=1) for x in (q, keys))
        return lanes + k16[:, None] * q16[None]

    lanes = jnp.zeros((keys.shape[0], q.shape[0], LANES), jnp.float32)
    return tree(lax.fori_loop(0, q.shape[1] // LANES, add, lanes))
