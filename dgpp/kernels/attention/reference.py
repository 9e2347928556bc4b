"""attention in plain JAX: the order of `dgpp.kernels.attention`, written out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from dgpp.kernels.attention.arguments import check_attention
from dgpp.kernels.lanes import LANES, as_bits, tree, widened
from dgpp.kernels.rounding import divided, exp_f32, rounded


def attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    cache_k: jax.Array,
    cache_v: jax.Array,
    layer: jax.Array,
    page_table: jax.Array,
    position: jax.Array,
    slot: jax.Array,
    kv_index: jax.Array,
    used: jax.Array,
    zero: jax.Array,
    *,
    scale: float,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(out float32 [R, H, D], cache_k, cache_v); arguments, order and promise as in `dgpp.kernels.attention`."""
    check_attention(q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, used, zero)
    page = cache_k.shape[2]
    live, last, planes = write_planes(k, v, cache_k, cache_v, layer, page_table, position, slot, used)
    queries = widened(as_bits(q))

    def attend(row: jax.Array, out: jax.Array) -> jax.Array:
        def walk(j: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            keys, values = page_of(planes, layer, page_table[slot[row], j], kv_index)
            valid = j * page + jnp.arange(page) <= last[row]
            return attend_page(queries[row], keys, values, valid, scale, zero, *state)

        heads, dim = q.shape[1:]
        start = (jnp.full(heads, -jnp.inf), jnp.zeros(heads), jnp.zeros((heads, dim)))
        count = jnp.where(live[row], last[row] // page + 1, 0)
        _, length, acc = lax.fori_loop(0, count, walk, start)
        return out.at[row].set(jnp.where(live[row], divided(acc, length[:, None]), 0))

    out = lax.fori_loop(0, q.shape[0], attend, jnp.zeros(q.shape, jnp.float32))
    cache_k, cache_v = (lax.bitcast_convert_type(bits, jnp.bfloat16) for bits in planes)
    return out, cache_k, cache_v


def write_planes(
    k: jax.Array,
    v: jax.Array,
    cache_k: jax.Array,
    cache_v: jax.Array,
    layer: jax.Array,
    page_table: jax.Array,
    position: jax.Array,
    slot: jax.Array,
    used: jax.Array,
) -> tuple[jax.Array, jax.Array, tuple[jax.Array, jax.Array]]:
    """(which rows are live, bool [R]; their positions, 0 for others; the two planes with all rows written, uint16)."""
    page = cache_k.shape[2]
    slots, pages_of_slot = page_table.shape
    live = (jnp.arange(k.shape[0]) < used) & (position >= 0) & (position < pages_of_slot * page)
    live &= (slot >= 0) & (slot < slots)
    last = jnp.where(live, position, 0)
    # A row that is not live is sent to a page that does not exist, and dropped there.
    pages = jnp.clip(page_table[jnp.where(live, slot, 0), last // page], 0, cache_k.shape[1] - 1)
    at = (jnp.clip(layer, 0, cache_k.shape[0] - 1), jnp.where(live, pages, cache_k.shape[1]), last % page)
    keys = as_bits(cache_k).at[at].set(as_bits(k), mode="drop")
    values = as_bits(cache_v).at[at].set(as_bits(v), mode="drop")
    return live, last, (keys, values)


def page_of(
    planes: tuple[jax.Array, jax.Array], layer: jax.Array, page: jax.Array, kv_index: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The keys and the values of one page for every query head, float32 [P, H, D] each, from uint16 planes."""
    at, size = (layer, page, 0, 0, 0), (1, 1, *planes[0].shape[2:])
    keys, values = (widened(lax.dynamic_slice(plane, at, size)[0, 0])[:, kv_index] for plane in planes)
    return keys, values


def attend_page(
    q: jax.Array,  # float32 [H, D]
    keys: jax.Array,  # float32 [P, H, D], likewise values
    values: jax.Array,
    valid: jax.Array,  # bool [P]
    scale: float,
    zero: jax.Array,
    top: jax.Array,  # float32 [H]: the running maximum m
    length: jax.Array,  # float32 [H]: the running sum l
    acc: jax.Array,  # float32 [H, D]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The state (m, l, acc) after one more page."""
    page, heads, dim = keys.shape

    def add_products(i: jax.Array, lanes: jax.Array) -> jax.Array:
        at = LANES * i
        q16 = lax.dynamic_slice_in_dim(q, at, LANES, axis=1)
        return lanes + q16 * lax.dynamic_slice_in_dim(keys, at, LANES, axis=2)

    lanes = lax.fori_loop(0, dim // LANES, add_products, jnp.zeros((page, heads, LANES)))
    score = rounded(tree(lanes) * jnp.float32(scale), zero)
    new_top = jnp.maximum(top, jnp.max(jnp.where(valid[:, None], score, -jnp.inf), axis=0))
    # The bfloat16 value: XLA may drop a cast there and back, and keeps reduce_precision.
    weight = lax.reduce_precision(exp_f32(score - new_top, zero), exponent_bits=8, mantissa_bits=7)
    weight = jnp.where(valid[:, None], weight, 0)
    shrink = exp_f32(top - new_top, zero)

    def add_weights(i: jax.Array, lanes: jax.Array) -> jax.Array:
        return lanes + lax.dynamic_slice_in_dim(weight, LANES * i, LANES, axis=0)

    total = tree(lax.fori_loop(0, page // LANES, add_weights, jnp.zeros((LANES, heads))).T)

    def add_value(t: jax.Array, part: jax.Array) -> jax.Array:
        return jnp.where(valid[t], part + weight[t][:, None] * values[t], part)

    part = lax.fori_loop(0, page, add_value, jnp.zeros((heads, dim)))
    return new_top, rounded(length * shrink, zero) + total, rounded(acc * shrink[:, None], zero) + part
