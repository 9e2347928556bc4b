"""The argument checks that every implementation of attention makes while tracing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dgpp.formats.cache import KVRows
from dgpp.kernels.lanes import LANES

Cache = jax.Array | dict[str, jax.Array]
"""A cache of keys or of values: bfloat16 [L, pages, P, K, D], or its planes as rows of FP8."""


def check_attention(
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
    sinks: jax.Array | None = None,
    window: int = 0,
) -> None:
    """Raises ValueError naming the first argument whose dtype or shape is wrong."""
    if q.ndim != 3:
        raise ValueError(f"attention: q must be [R, H, D], not shape {q.shape}")
    front = front_of(cache_k)
    rows, heads, dim = q.shape
    page, kv_heads = front[2:]
    dim_v = jnp.shape(v)[-1] if jnp.ndim(v) == 3 else dim
    if dim % LANES or dim_v % LANES or page % LANES:
        raise ValueError(
            f"attention: D = {dim} (of q), {dim_v} (of v) and P = {page} (of cache_k) must be multiples of {LANES}"
        )
    expected: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
        "q": (q, jnp.bfloat16, (rows, heads, dim)),
        "k": (k, jnp.bfloat16, (rows, kv_heads, dim)),
        "v": (v, jnp.bfloat16, (rows, kv_heads, dim_v)),
        **expected_planes("cache_k", cache_k, front, dim),
        **expected_planes("cache_v", cache_v, front, dim_v),
        "layer": (layer, jnp.int32, ()),
        "page_table": (page_table, jnp.int32, jnp.shape(page_table)),
        "position": (position, jnp.int32, (rows,)),
        "slot": (slot, jnp.int32, (rows,)),
        "kv_index": (kv_index, jnp.int32, (heads,)),
        "used": (used, jnp.int32, ()),
        "zero": (zero, jnp.int32, ()),
    }
    if sinks is not None:
        expected["sinks"] = (sinks, jnp.float32, (heads,))
    for name, (value, dtype, shape) in expected.items():
        if jnp.asarray(value).dtype != dtype or jnp.shape(value) != shape:
            found = f"{jnp.asarray(value).dtype} of shape {jnp.shape(value)}"
            raise ValueError(f"attention: {name} must be {jnp.dtype(dtype)} of shape {shape}, not {found}")
    if isinstance(cache_k, dict) != isinstance(cache_v, dict):
        raise ValueError("attention: cache_k and cache_v must be of one form, both bfloat16 or both rows of FP8")
    if jnp.ndim(page_table) != 2:
        raise ValueError(f"attention: page_table must be [S, M], not shape {jnp.shape(page_table)}")
    if window < 0:
        raise ValueError(f"attention: window = {window} must be 0 (all tokens) or a number of tokens")


def front_of(cache: Cache) -> tuple[int, ...]:
    """(L, pages, P, K) of a cache of keys."""
    if isinstance(cache, dict) and "codes" not in cache:
        raise ValueError(f"attention: cache_k must hold {sorted(KVRows().planes(1))}, not {sorted(cache)}")
    plane = cache["codes"] if isinstance(cache, dict) else cache
    if plane.ndim != 5:
        raise ValueError(f"attention: cache_k must be [L, pages, P, K, D], not shape {plane.shape}")
    return tuple(plane.shape[:4])


def expected_planes(
    name: str, cache: Cache, front: tuple[int, ...], dim: int
) -> dict[str, tuple[Any, Any, tuple[int, ...]]]:
    """(value, dtype, shape) of the arrays of one cache, by the name to call each."""
    if not isinstance(cache, dict):
        return {name: (cache, jnp.bfloat16, (*front, dim))}
    planes = KVRows().planes(dim)
    if sorted(cache) != sorted(planes):
        raise ValueError(f"attention: {name} must hold {sorted(planes)}, not {sorted(cache)}")
    return {f"{name}[{part}]": (cache[part], plane.dtype, (*front, *plane.shape)) for part, plane in planes.items()}
