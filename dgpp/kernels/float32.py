"""Every op in plain JAX float32: products of decoded weights at the highest precision, softmax in one piece.

For comparing a forward with another implementation and for looking at what rounding does, not for serving: no order is
promised, a packed weight is decoded whole at every use, and activations and planes may be of any type. Arguments and
meaning are those of the op packages.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dgpp.formats import Weight, format_named
from dgpp.formats.cache import KVRows
from dgpp.kernels.attention.arguments import Cache, front_of
from dgpp.kernels.experts import composed
from dgpp.kernels.linear.arguments import check_ranges
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.sparse_attention.reference import selection

HIGHEST = lax.Precision.HIGHEST


def linear(x: jax.Array, w: Weight, layer: jax.Array, used: jax.Array) -> jax.Array:
    """float32 [R, N]; see `dgpp.kernels.linear`."""
    return linear_leaves(x, w, layer, used, ((0, w.shape[-1]),))[0]


def linear_leaves(x: jax.Array, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges) -> jax.Array:
    """float32 [len(ranges), R, N]; see `dgpp.kernels.linear`."""
    values, x = decoded(w, layer), x.astype(jnp.float32)
    ranges = check_ranges("linear_leaves", ranges, w.shape[-1])
    parts = [jnp.einsum("rk,nk->rn", x[:, a:b], values[:, a:b], precision=HIGHEST) for a, b in ranges]
    return jnp.where(jnp.arange(x.shape[0])[:, None] < used, jnp.stack(parts), 0)


def grouped_linear(x: jax.Array, experts: jax.Array, w: Weight, layer: jax.Array, used: jax.Array) -> jax.Array:
    """float32 [R, E', N]; see `dgpp.kernels.experts`."""
    return grouped_linear_leaves(x, experts, w, layer, used, ((0, w.shape[-1]),))[0]


def grouped_linear_leaves(
    x: jax.Array, experts: jax.Array, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges
) -> jax.Array:
    """float32 [len(ranges), R, E', N]; see `dgpp.kernels.experts`."""
    held, _, k = w.shape
    values, ranges = decoded(w, layer), check_ranges("grouped_linear_leaves", ranges, k)
    inputs = jnp.broadcast_to(x if x.ndim == 3 else x[:, None], (*experts.shape, k)).astype(jnp.float32)
    there = (jnp.arange(x.shape[0])[:, None] < used) & (experts >= 0) & (experts < held)

    def row(pair: tuple[jax.Array, jax.Array]) -> jax.Array:  # [leaves, E', N]
        one, chosen = pair
        matrices = values[jnp.clip(chosen, 0, held - 1)]
        parts = [jnp.einsum("ek,enk->en", one[:, a:b], matrices[..., a:b], precision=HIGHEST) for a, b in ranges]
        return jnp.stack(parts)

    out = jnp.moveaxis(lax.map(row, (inputs, experts)), 0, 1)
    return jnp.where(there[None, :, :, None], out, 0)


grouped_gated = partial(composed.gated, grouped_linear)
grouped_down = partial(composed.down, grouped_linear_leaves)


def decoded(w: Weight, layer: jax.Array) -> jax.Array:
    """The values of one layer by the format's own decode, float32 of the logical shape."""
    format = format_named(w.format)
    payload, packed = next(iter(format.arrays(w.shape).items()))
    arrays = dict(w.arrays)
    if arrays[payload].ndim > len(packed.shape):
        arrays = {name: lax.dynamic_index_in_dim(array, layer, keepdims=False) for name, array in arrays.items()}
    if list(arrays) == ["values"]:
        return arrays["values"].astype(jnp.float32)

    def decode(held: dict[str, Any]) -> np.ndarray:
        return np.asarray(format.decode({name: np.asarray(array) for name, array in held.items()}, w.shape), np.float32)

    return jax.pure_callback(decode, jax.ShapeDtypeStruct(w.shape, jnp.float32), arrays)


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
    """(out float32 [R, H, DV], cache_k, cache_v); see `dgpp.kernels.attention`."""
    tokens = jnp.arange(page_table.shape[1] * front_of(cache_k)[2])
    visible = tokens[None] <= position[:, None]
    if window:
        visible &= tokens[None] > position[:, None] - window
    planes = (cache_k, cache_v)
    return _attend(q, k, v, planes, layer, page_table, position, slot, kv_index, used, visible, scale, sinks)


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
    """(out float32 [R, H, DV], cache_k, cache_v); see `dgpp.kernels.sparse_attention`."""
    tokens = jnp.arange(page_table.shape[1] * front_of(cache_k)[2])
    tail = (position[:, None] + 1) // block * block
    chosen = jnp.repeat(selection(blocks, len(tokens) // block), block, axis=1)
    visible = (tokens[None] <= position[:, None]) & (chosen | (tokens[None] >= tail))
    planes = (cache_k, cache_v)
    return _attend(q, k, v, planes, layer, page_table, position, slot, kv_index, used, visible, scale)


def _attend(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    planes: tuple[Cache, Cache],
    layer: jax.Array,
    page_table: jax.Array,
    position: jax.Array,
    slot: jax.Array,
    kv_index: jax.Array,
    used: jax.Array,
    visible: jax.Array,  # bool [R, M * P]
    scale: float,
    sinks: jax.Array | None = None,
) -> tuple[jax.Array, Cache, Cache]:
    """Softmax attention over the visible tokens of each row's slot, after the rows' keys and values are written."""
    held, page = front_of(planes[0])[1:3]
    live = (jnp.arange(q.shape[0]) < used) & (position >= 0)
    last, mine = jnp.where(live, position, 0), jnp.where(live, slot, 0)
    pages = jnp.where(live, page_table[mine, last // page], held)  # one that is not there is dropped

    def written(cache: Cache, new: jax.Array) -> Cache:
        if not isinstance(cache, dict):
            return cache.at[layer, pages, last % page].set(new.astype(cache.dtype), mode="drop")
        encoded = KVRows().encode(new)
        return {
            name: plane.at[layer, pages, last % page].set(encoded[name], mode="drop") for name, plane in cache.items()
        }

    def of_slot(cache: Cache, at: jax.Array) -> jax.Array:  # [M * P, K, D]
        if not isinstance(cache, dict):
            return cache[layer, at].reshape(-1, *cache.shape[3:]).astype(jnp.float32)
        rows = KVRows().decode({name: plane[layer, at] for name, plane in cache.items()}, cache["codes"].shape[-1])
        return rows.reshape(-1, *rows.shape[2:])

    cache_k, cache_v = (written(plane, new) for plane, new in zip(planes, (k, v), strict=True))

    def row(one: tuple[jax.Array, ...]) -> jax.Array:
        query, at, seen = one
        keys, values = (of_slot(plane, at)[:, kv_index] for plane in (cache_k, cache_v))
        score = jnp.einsum("hd,thd->ht", query.astype(jnp.float32), keys, precision=HIGHEST) * scale
        score = jnp.where(seen, score, -jnp.inf)
        if sinks is None:
            weight = jax.nn.softmax(score, axis=-1)
        else:
            weight = jax.nn.softmax(jnp.concatenate([score, sinks[:, None]], axis=-1), axis=-1)[:, :-1]
        # What was never written may be NaN, and 0 * NaN is not 0.
        return jnp.einsum("ht,thd->hd", weight, jnp.where(seen[:, None, None], values, 0), precision=HIGHEST)

    out = lax.map(row, (q, page_table[mine], visible))
    return jnp.where(live[:, None, None], out, 0), cache_k, cache_v
