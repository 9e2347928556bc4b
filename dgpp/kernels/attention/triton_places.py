"""Which rows of a batch make a tile, and where in the paged cache the tokens lie that they attend to."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.clamp import clamped
from dgpp.kernels.linear.triton_decode import e4m3


@triton.jit
def tile_at(
    lead: tl.tensor,
    row: tl.tensor,  # [N]: the rows that the tile may have
    slot: tl.tensor,
    live_rows: tl.tensor,
    R: tl.constexpr,
    ROWS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """(whether a tile begins at row `lead`, its slot, -1 beyond the live rows, and the row behind its last).

    Tiles hold rows of one slot that follow each other; they begin at every multiple of ROWS and where the slot changes.
    """
    ours = tl.load(slot + lead, mask=lead < live_rows, other=-1)
    before = tl.load(slot + lead - 1, mask=(lead > 0) & (lead <= live_rows), other=-1)
    mine = tl.load(slot + row, mask=row < live_rows, other=-1)
    border = tl.minimum(lead - lead % ROWS + ROWS, R)
    border = tl.min(tl.where(mine != ours, tl.minimum(row, border), border), axis=0)
    return (lead % ROWS == 0) | (ours != before), ours, border


@triton.jit
def page_at(table: tl.tensor, j: tl.tensor, mask: tl.tensor, PAGES: tl.constexpr) -> tl.tensor:
    """Pages number j of a slot, held within the cache."""
    return clamped(tl.load(table + j, mask=mask, other=0), PAGES)


@triton.jit
def places_of(
    i: tl.tensor,  # [BLOCK]: numbers among the tokens that the tile attends to, from `block` on
    block: tl.tensor,
    page: tl.tensor,  # the block's, as the table has it, where ALIGNED
    stop: tl.tensor,
    table: tl.tensor,
    plane: tl.tensor,
    places: tl.tensor,  # int32: where this row's chosen blocks begin
    count: tl.tensor,  # of tokens in them
    tail: tl.tensor,  # where the token lies that follows the last complete block
    PAGES: tl.constexpr,
    P: tl.constexpr,
    GROUP: tl.constexpr,
    ALIGNED: tl.constexpr,  # whether the tokens lie within one page, one after the other
) -> tuple[tl.tensor, tl.tensor]:
    """Where the i-th tokens lie among all tokens of the cache: (a number, int64, what to add to it for each)."""
    start = plane.to(tl.int64) * P
    if ALIGNED:
        start += clamped(page, PAGES) * P + block % P
        place = i - block
    elif GROUP:
        place = tl.load(places + i // GROUP, mask=i < count, other=0) + i % GROUP
        place = tl.where(i < count, place, tail + i - count)
    else:
        place = page_at(table, i // P, i < stop, PAGES) * P + i % P
    return start, place


@triton.jit
def load_rows(
    cache: tl.tensor,
    scale: tl.tensor,
    start: tl.tensor,
    place: tl.tensor,
    inside: tl.tensor,  # bool [BLOCK]
    kv: tl.tensor,
    e: tl.tensor,  # the columns
    K: tl.constexpr,
    WIDTH: tl.constexpr,
    TOKENS: tl.constexpr,  # of a layer
    PADDED: tl.constexpr,  # whether `e` goes beyond WIDTH
    CHECKED: tl.constexpr,  # whether `inside` may be false
    FP8: tl.constexpr,
) -> tl.tensor:
    """bf16 [BLOCK, columns] of one head; zeros where nothing is."""
    if TOKENS * K * WIDTH >= 2**31:
        place = place.to(tl.int64)
    at = cache + (start * K + kv) * WIDTH + (place[:, None] * (K * WIDTH) + e[None, :])
    if CHECKED:
        values = tl.load(at, mask=inside[:, None] & (e < WIDTH)[None, :], other=0)
    elif PADDED:
        values = tl.load(at, mask=(e < WIDTH)[None, :], other=0)
    else:
        values = tl.load(at)
    if FP8:
        at_scale = scale + (start * K + kv) + place * K
        factor = tl.load(at_scale, mask=inside, other=0.0) if CHECKED else tl.load(at_scale)
        values = (e4m3(values).to(tl.float32) * factor[:, None]).to(tl.bfloat16)
    return values
