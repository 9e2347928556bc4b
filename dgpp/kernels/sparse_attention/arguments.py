"""The argument checks that every implementation of sparse attention makes while tracing."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def check_index(
    q: jax.Array,
    index: jax.Array,
    layer: jax.Array,
    page_table: jax.Array,
    position: jax.Array,
    slot: jax.Array,
    used: jax.Array,
    zero: jax.Array,
) -> None:
    """Raises ValueError naming the first argument of index_scores whose dtype or shape is wrong."""
    if q.ndim != 3:
        raise ValueError(f"index_scores: q must be [R, H, D], not shape {q.shape}")
    if index.ndim != 4 or index.shape[3] != q.shape[2]:
        raise ValueError(f"index_scores: index must be [L, pages, E, {q.shape[2]}], not shape {index.shape}")
    rows, i32 = q.shape[0], jnp.int32
    expected = {
        "q": (q, index.dtype, q.shape),
        "layer": (layer, i32, ()),
        "page_table": (page_table, i32, jnp.shape(page_table)),
        "position": (position, i32, (rows,)),
        "slot": (slot, i32, (rows,)),
        "used": (used, i32, ()),
        "zero": (zero, i32, ()),
    }
    for name, (value, dtype, shape) in expected.items():
        if jnp.asarray(value).dtype != dtype or jnp.shape(value) != shape:
            found = f"{jnp.asarray(value).dtype} of shape {jnp.shape(value)}"
            raise ValueError(f"index_scores: {name} must be {jnp.dtype(dtype)} of shape {shape}, not {found}")


def check_blocks(blocks: jax.Array, rows: int, block: int, page: int) -> None:
    """Raises ValueError naming what is wrong with the selected blocks or their size."""
    if block < 1 or page % block:
        raise ValueError(f"sparse_attention: block = {block} does not divide a page of {page} tokens")
    if blocks.dtype != jnp.int32 or blocks.ndim != 2 or blocks.shape[0] != rows:
        raise ValueError(
            f"sparse_attention: blocks must be int32 [{rows}, n], not {blocks.dtype} of shape {blocks.shape}"
        )
