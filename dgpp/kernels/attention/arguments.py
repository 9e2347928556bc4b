"""The argument checks that every implementation of attention makes while tracing."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dgpp.kernels.lanes import LANES


def check_attention(
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
) -> None:
    """Raises ValueError naming the first argument whose dtype or shape is wrong."""
    if q.ndim != 3:
        raise ValueError(f"attention: q must be [R, H, D], not shape {q.shape}")
    if cache_k.ndim != 5:
        raise ValueError(f"attention: cache_k must be [L, pages, P, K, D], not shape {cache_k.shape}")
    rows, heads, dim = q.shape
    page, kv_heads = cache_k.shape[2:4]
    if dim % LANES or page % LANES:
        raise ValueError(f"attention: D = {dim} (of q) and P = {page} (of cache_k) must be multiples of {LANES}")
    expected = {
        "q": (q, jnp.bfloat16, (rows, heads, dim)),
        "k": (k, jnp.bfloat16, (rows, kv_heads, dim)),
        "v": (v, jnp.bfloat16, (rows, kv_heads, dim)),
        "cache_k": (cache_k, jnp.bfloat16, (*cache_k.shape[:4], dim)),
        "cache_v": (cache_v, jnp.bfloat16, cache_k.shape),
        "layer": (layer, jnp.int32, ()),
        "page_table": (page_table, jnp.int32, jnp.shape(page_table)),
        "position": (position, jnp.int32, (rows,)),
        "slot": (slot, jnp.int32, (rows,)),
        "kv_index": (kv_index, jnp.int32, (heads,)),
        "used": (used, jnp.int32, ()),
        "zero": (zero, jnp.int32, ()),
    }
    for name, (value, dtype, shape) in expected.items():
        if jnp.asarray(value).dtype != dtype or jnp.shape(value) != shape:
            found = f"{jnp.asarray(value).dtype} of shape {jnp.shape(value)}"
            raise ValueError(f"attention: {name} must be {jnp.dtype(dtype)} of shape {shape}, not {found}")
    if jnp.ndim(page_table) != 2:
        raise ValueError(f"attention: page_table must be [S, M], not shape {jnp.shape(page_table)}")
