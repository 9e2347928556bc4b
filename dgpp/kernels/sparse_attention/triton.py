"""Sparse attention and its indexer on a GPU. Arguments and results as in `dgpp.kernels.sparse_attention`.

Promise: for one architecture a row's bits depend on its query, its cache and its blocks alone; with all blocks selected
they are those of `dgpp.kernels.attention.triton`, whose order numbers the tokens that a row attends to. In `blocks`,
the numbers that mean a block stand in front, ascending, as `select_blocks` has them. Scores are added by the matrix
unit, 16 dimensions at a time in ascending order, and multiplied by fl32(1 / sqrt(D')); the selection is exact and has
the reference's bits.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from dgpp.kernels.attention.arguments import Cache, check_attention, front_of
from dgpp.kernels.attention.triton import attended, power_of_two
from dgpp.kernels.gpu.launch import ASSEMBLY, Out, architecture, launch
from dgpp.kernels.sparse_attention.arguments import check_blocks, check_index
from dgpp.kernels.sparse_attention.triton_index import scores, select

ROWS = {"sm_90": 64, "sm_121": 16}  # of a tile of scores
BLOCKS = 128
FEW = 64  # rows up to which each may begin a tile of its own; beyond,
SPAN = 8  # so many rows share a program
CHUNK = 2048  # scores that the selection takes at a time


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
    """float32 [R, N]; `index` is bfloat16."""
    check_index(q, index, layer, page_table, position, slot, used, zero)
    if index.dtype != jnp.bfloat16:
        raise ValueError(f"index_scores: index must be bfloat16, not {index.dtype}")
    (rows, heads, dim), (layers, pages, each, _) = q.shape, index.shape
    slots, pages_of_slot = page_table.shape
    count = pages_of_slot * each
    span = 1 if rows <= FEW else SPAN
    constants = {
        "R": rows,
        "H": heads,
        "D": dim,
        "DPAD": max(16, power_of_two(dim)),
        "L": layers,
        "PAGES": pages,
        "E": each,
        "S": slots,
        "M": pages_of_slot,
        "GROUP": block,
        "COUNT": count,
        "FACTOR": 1 / math.sqrt(dim),
        "ROWS": ROWS[architecture()],
        "BLOCKS": BLOCKS,
        "SPAN": span,
        "ASM": ASSEMBLY,
    }
    arguments = (q, index, layer, page_table, position, slot, used)
    outs = (Out((rows, count), jnp.float32),)
    grid = (-(-rows // span), -(-count // BLOCKS))
    return launch(scores, arguments, outs, grid, constants, warps=4, stages=1)[0]


def select_blocks(scores: jax.Array, count: int) -> jax.Array:
    """int32 [R, min(count, N)]."""
    rows, blocks = scores.shape
    taken = min(count, blocks)
    constants = {"N": blocks, "COUNT": taken, "CHUNK": min(CHUNK, max(16, power_of_two(blocks)))}
    return launch(select, (scores,), (Out((rows, taken), jnp.int32),), (rows,), constants, warps=8, stages=1)[0]


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
    """(out float32 [R, H, DV], cache_k, cache_v)."""
    check_attention(q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, used, zero)
    check_blocks(blocks, q.shape[0], block, front_of(cache_k)[2])
    operands = (q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, used)
    return attended(*operands, scale, blocks=blocks, group=block)
