"""attention on a GPU. Same arguments and results as `dgpp.kernels.attention`; the order of `triton_pages`.

Promise: for one architecture a row's bits depend on its query, the cache up to its position and the page table alone:
not on the pages' size, the other rows, or whether few rows (a program per split) or many (a program walks all splits)
are in the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dgpp.kernels.attention.arguments import Cache, check_attention, front_of
from dgpp.kernels.attention.triton_pages import attend, merge
from dgpp.kernels.attention.triton_rows import write, write_fp8
from dgpp.kernels.gpu.launch import ASSEMBLY, Out, architecture, launch

SPLIT = 256
BLOCK = 64
FEW = 64  # rows up to which splits run side by side,
SCRATCH = 256 << 20  # as long as their parts take no more bytes than this
PLAN = 16  # integers of a row's plan, see `triton_rows`
PROGRAMS = 264  # that share the splits, about
SPAN = 4  # rows of a batch of many among which one program takes tiles,
ALONE = 512  # from this many rows on


@dataclass(frozen=True)
class Form:
    """`columns` of a tile (rows times heads), `values` columns of v at most, and how Triton compiles the kernel."""

    columns: int
    values: int
    warps: int
    stages: int
    swapped: bool = False


FORMS: dict[str, dict[str, Form]] = {
    "sm_90": {
        "few": Form(16, 512, 8, 3, swapped=True),
        "few fp8": Form(16, 512, 8, 2, swapped=True),
        "many": Form(128, 128, 8, 2),
        "sparse": Form(16, 512, 8, 3, swapped=True),
    },
    "sm_121": {
        "few": Form(16, 512, 8, 2, swapped=True),
        "few fp8": Form(16, 512, 8, 2, swapped=True),
        "many": Form(64, 128, 8, 2),
        "sparse": Form(16, 512, 8, 2, swapped=True),
    },
}
"""By architecture: for few rows, for many, and for rows that attend to blocks of their own. They change no bit."""


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
    """(out float32 [R, H, DV], cache_k, cache_v); arguments as in `dgpp.kernels.attention`."""
    check_attention(q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, used, zero, sinks, window)
    operands = (q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, used)
    return attended(*operands, scale, sinks=sinks, window=window)


def power_of_two(n: int) -> int:
    """The least one that is not below `n`."""
    return 1 << (n - 1).bit_length()


def attended(
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
    scale: float,
    *,
    sinks: jax.Array | None = None,
    window: int = 0,
    blocks: jax.Array | None = None,
    group: int = 0,
) -> tuple[jax.Array, Cache, Cache]:
    """(out float32 [R, H, DV], cache_k, cache_v): of all tokens, or of those in `blocks` of `group` tokens each."""
    fp8 = isinstance(cache_k, dict)
    planes = [
        plane
        for cache in (cache_k, cache_v)
        for plane in ((cache["codes"], cache["scale"]) if isinstance(cache, dict) else (cache,))
    ]
    (rows, heads, dim), (_, kv_heads, dim_v) = q.shape, v.shape
    layers, pages, page = front_of(cache_k)[:3]
    slots, pages_of_slot = page_table.shape
    tokens = pages_of_slot * page
    chosen = 0 if blocks is None else blocks.shape[1]
    splits = -(-min(tokens, (chosen + 1) * group if group else tokens) // SPLIT)
    few = rows <= FEW and 4 * splits * rows * heads * dim_v <= SCRATCH
    form = FORMS[architecture()]["sparse" if group else "many" if not few else "few fp8" if fp8 else "few"]
    tile_heads = min(form.columns, -(-heads // kv_heads))
    tile_rows = 1 if group else form.columns // tile_heads
    values = min(form.values, power_of_two(dim_v))
    constants = {
        "R": rows,
        "H": heads,
        "K": kv_heads,
        "D": dim,
        "DV": dim_v,
        "L": layers,
        "PAGES": pages,
        "P": page,
        "M": pages_of_slot,
        "DPAD": power_of_two(dim),
        "ROWS": tile_rows,
        "WINDOW": window,
        "GROUP": group,
        "CHOSEN": chosen,
    }
    paddings = {
        "S": slots,
        "HPAD": power_of_two(heads),
        "KPAD": power_of_two(kv_heads),
        "VPAD": power_of_two(dim_v),
        "RPAD": power_of_two(tile_rows),
        "CPAD": power_of_two(max(chosen, 1)),
    }
    listed, sink = (position if x is None else x for x in (blocks, sinks))
    *planes, plan, lists, places = launch(
        write_fp8 if fp8 else write,
        (k, v, *planes, layer, page_table, position, slot, kv_index, listed, used),
        (
            *(Out(plane.shape, plane.dtype, alias=i + 2) for i, plane in enumerate(planes)),
            Out((rows, PLAN), jnp.int32),
            Out((kv_heads, 1 + heads), jnp.int32),
            Out((rows, max(chosen, 1)), jnp.int32),
        ),
        (max(rows, kv_heads),),
        constants | paddings,
        warps=4,
        stages=1,
    )
    cache_k, scale_k, cache_v, scale_v = planes if fp8 else (planes[0], position, planes[1], position)
    span = 1 if rows < ALONE or group else SPAN
    parts = (splits if few else 1, rows, heads)
    options = {"SINKS": sinks is not None, "SPLIT": SPLIT, "ASM": ASSEMBLY}
    acc, top, length = launch(
        attend,
        (q, cache_k, scale_k, cache_v, scale_v, layer, page_table, plan, lists, places, sink),
        (Out((*parts, dim_v), jnp.float32), Out(parts, jnp.float32), Out(parts, jnp.float32)),
        (
            -(-rows // span),
            kv_heads * -(-dim_v // values),
            min(splits, max(1, PROGRAMS // (rows * kv_heads))) if few else 1,
        ),
        constants
        | options
        | {
            "FACTOR": scale * math.log2(math.e),
            "FP8": fp8,
            "BLOCK": BLOCK,
            "N": form.columns,
            "HEADS": tile_heads,
            "VALUES": values,
            "SPAN": span,
            "WHOLE": not few,
            "SWAPPED": form.swapped,
        },
        warps=form.warps,
        stages=form.stages,
    )
    out = acc[0]
    if few:
        width = min(64, power_of_two(dim_v))
        (out,) = launch(
            merge,
            (acc, top, length, plan, sink),
            (Out((rows, heads, dim_v), jnp.float32),),
            (rows, heads, -(-dim_v // width)),
            options | {"R": rows, "H": heads, "DV": dim_v, "WINDOW": window, "VALUES": width, "UNROLL": 16},
            warps=1,
            stages=1,
        )
    if fp8:
        return out, {"codes": cache_k, "scale": scale_k}, {"codes": cache_v, "scale": scale_v}
    return out, cache_k, cache_v
