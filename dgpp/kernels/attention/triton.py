"""attention on a GPU. Same arguments and results as `dgpp.kernels.attention`; the order of `triton_pages`.

Promise: for one architecture a row's bits depend on its query, the cache up to its position and the page table alone:
not on the pages' size, the other rows, or whether few rows (a program per split) or many (a program walks all splits)
are in the batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dgpp.kernels.attention.arguments import check_attention
from dgpp.kernels.attention.triton_pages import attend, merge, write
from dgpp.kernels.gpu.launch import ASSEMBLY, Out, architecture, launch

SPLIT = 512
BLOCK = 64
FEW = 64  # rows up to which splits run side by side,
SCRATCH = 256 << 20  # as long as their parts take no more bytes than this
HEADS = 8  # of a tile that has several rows
ROWS = 4
WARPS = 4
MANY_WARPS = 8  # of a tile with several rows
STAGES = {"sm_90": 2}  # blocks of tokens under way; 1 elsewhere, for 99 KiB of shared memory hold no second at D = 256


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
    """(out float32 [R, H, D], cache_k, cache_v); arguments as in `dgpp.kernels.attention`, D a power of two."""
    check_attention(q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, used, zero)
    (rows, heads, dim), (layers, pages, page, kv_heads, _) = q.shape, cache_k.shape
    slots, pages_of_slot = page_table.shape
    if dim & (dim - 1):
        raise ValueError(f"attention: D = {dim} must be a power of two")
    cache = {"L": layers, "PAGES": pages, "P": page, "S": slots, "M": pages_of_slot}
    width = kv_heads * dim
    cache_k, cache_v = launch(
        write,
        (k, v, cache_k, cache_v, layer, page_table, position, slot, used),
        (Out(cache_k.shape, jnp.bfloat16, alias=2), Out(cache_v.shape, jnp.bfloat16, alias=3)),
        (rows,),
        cache | {"WIDTH": width, "BLOCK": 1 << (width - 1).bit_length()},
        warps=WARPS,
        stages=1,
    )
    splits = -(-pages_of_slot * page // SPLIT)
    few = rows <= FEW and 4 * splits * q.size <= SCRATCH
    tile_rows, tile_heads = (1, 16) if few else (ROWS, HEADS)
    splits = splits if few else 1
    parts = (splits, rows, heads)
    constants = cache | {
        "SCALE": scale,
        "R": rows,
        "H": heads,
        "HPAD": 1 << (heads - 1).bit_length(),
        "K": kv_heads,
        "D": dim,
        "SPLIT": SPLIT,
        "BLOCK": BLOCK,
        "ROWS": tile_rows,
        "HEADS": tile_heads,
        "WHOLE": not few,
        "ASM": ASSEMBLY,
    }
    arguments = (q, cache_k, cache_v, layer, page_table, position, slot, kv_index, used)
    outs = (Out((*parts, dim), jnp.float32), Out(parts, jnp.float32), Out(parts, jnp.float32))
    grid = (-(-rows // tile_rows), kv_heads * -(-heads // tile_heads), splits)
    acc, top, length = launch(
        attend,
        arguments,
        outs,
        grid,
        constants,
        warps=WARPS if few else MANY_WARPS,
        stages=STAGES.get(architecture(), 1),
    )
    if not few:
        return acc[0], cache_k, cache_v
    out = (Out((rows, heads, dim), jnp.float32),)
    numbers = {"SPLITS": splits, "R": rows, "H": heads, "D": dim, "SPLIT": SPLIT}
    return (
        launch(merge, (acc, top, length, position), out, (rows, heads), numbers, warps=1, stages=1)[0],
        cache_k,
        cache_v,
    )
