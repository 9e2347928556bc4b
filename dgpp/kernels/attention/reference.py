"""attention in plain JAX: the order of `dgpp.kernels.attention`, written out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from dgpp.formats.cache import KVRows
from dgpp.kernels.attention.arguments import Cache, check_attention, front_of
from dgpp.kernels.lanes import LANES, as_bits, tree, widened
from dgpp.kernels.rounding import divided, exp_f32, rounded


def attention(
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
    used: jax.Array,
    zero: jax.Array,
    *,
    scale: float,
    sinks: jax.Array | None = None,
    window: int = 0,
) -> tuple[jax.Array, Cache, Cache]:
    """(out float32 [R, H, DV], cache_k, cache_v); arguments, order and promise as in `dgpp.kernels.attention`."""
    check_attention(q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, used, zero, sinks, window)
    page = front_of(cache_k)[2]
    live, last, planes = write_planes(k, v, cache_k, cache_v, layer, page_table, position, slot, used)
    queries = widened(as_bits(q))

    def attend(row: jax.Array, out: jax.Array) -> jax.Array:
        first = jnp.maximum(last[row] - window + 1, 0) if window else 0

        def walk(j: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            keys, values = page_of(planes, layer, page_table[slot[row], j], kv_index)
            token = j * page + jnp.arange(page)
            valid = (token <= last[row]) & (token >= first) if window else token <= last[row]
            return attend_page(queries[row], keys, values, valid, scale, zero, *state)

        heads, dim_v = out.shape[1:]
        start = (jnp.full(heads, -jnp.inf), jnp.zeros(heads), jnp.zeros((heads, dim_v)))
        count = jnp.where(live[row], last[row] // page + 1, 0)
        top, length, acc = lax.fori_loop(first // page, count, walk, start)
        if sinks is not None:
            _, length, acc = with_sinks(sinks, zero, top, length, acc)
        return out.at[row].set(jnp.where(live[row], divided(acc, length[:, None]), 0))

    out = lax.fori_loop(0, q.shape[0], attend, jnp.zeros((*q.shape[:2], v.shape[-1]), jnp.float32))
    return out, *(stored(plane) for plane in planes)


def with_sinks(
    sinks: jax.Array, zero: jax.Array, top: jax.Array, length: jax.Array, acc: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The state (m, l, acc) after one more logit of each head, which has a weight and no value."""
    new_top = jnp.maximum(top, sinks)
    shrink = exp_f32(top - new_top, zero)
    length = rounded(length * shrink, zero) + exp_f32(sinks - new_top, zero)
    return new_top, length, rounded(acc * shrink[:, None], zero)


def write_planes(
    k: jax.Array,
    v: jax.Array,
    cache_k: Cache,
    cache_v: Cache,
    layer: jax.Array,
    page_table: jax.Array,
    position: jax.Array,
    slot: jax.Array,
    used: jax.Array,
) -> tuple[jax.Array, jax.Array, tuple[Cache, Cache]]:
    """(which rows are live, bool [R]; their positions, 0 for others; the two caches with all rows written).

    A bfloat16 cache comes out as uint16, for `page_of` and `stored`.
    """
    layers, held, page = front_of(cache_k)[:3]
    slots, pages_of_slot = page_table.shape
    live = (jnp.arange(k.shape[0]) < used) & (position >= 0) & (position < pages_of_slot * page)
    live &= (slot >= 0) & (slot < slots)
    last = jnp.where(live, position, 0)
    # A row that is not live is sent to a page that does not exist, and dropped there.
    pages = jnp.clip(page_table[jnp.where(live, slot, 0), last // page], 0, held - 1)
    at = (jnp.clip(layer, 0, layers - 1), jnp.where(live, pages, held), last % page)

    def written(cache: Cache, rows: jax.Array) -> Cache:
        if not isinstance(cache, dict):
            return as_bits(cache).at[at].set(as_bits(rows), mode="drop")
        planes = KVRows().encode(rows)
        return {name: plane.at[at].set(planes[name], mode="drop") for name, plane in cache.items()}

    return live, last, (written(cache_k, k), written(cache_v, v))


def stored(plane: Cache) -> Cache:
    """A cache as the caller has it, of one from `write_planes`."""
    return plane if isinstance(plane, dict) else lax.bitcast_convert_type(plane, jnp.bfloat16)


def page_of(
    planes: tuple[Cache, Cache], layer: jax.Array, page: jax.Array, kv_index: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The keys and the values of one page for every query head, float32 [P, H, D] each, of `write_planes`'s caches."""

    def cut(plane: jax.Array) -> jax.Array:
        return lax.dynamic_slice(plane, (layer, page) + (0,) * (plane.ndim - 2), (1, 1, *plane.shape[2:]))[0, 0]

    def values_of(cache: Cache) -> jax.Array:
        if not isinstance(cache, dict):
            return widened(cut(cache))
        return KVRows().decode({name: cut(plane) for name, plane in cache.items()}, cache["codes"].shape[-1])

    keys, values = (values_of(plane)[:, kv_index] for plane in planes)
    return keys, values


def attend_page(
    q: jax.Array,  # float32 [H, D]
    keys: jax.Array,  # float32 [P, H, D]
    values: jax.Array,  # float32 [P, H, DV]
    valid: jax.Array,  # bool [P]
    scale: float,
    zero: jax.Array,
    top: jax.Array,  # float32 [H]: the running maximum m
    length: jax.Array,  # float32 [H]: the running sum l
    acc: jax.Array,  # float32 [H, DV]
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

    part = lax.fori_loop(0, page, add_value, jnp.zeros((heads, values.shape[-1])))
    return new_top, rounded(length * shrink, zero) + total, rounded(acc * shrink[:, None], zero) + part
