"""The indexer of sparse attention as Triton kernels: the scores of blocks, and the exact choice of the best ones."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.attention.triton_places import page_at, tile_at
from dgpp.kernels.attention.triton_softmax import dot
from dgpp.kernels.gpu.clamp import clamped


@triton.jit
def scores(
    q: tl.tensor,  # bf16 [R, H, D]
    index: tl.tensor,  # bf16 [L, PAGES, E, D]
    layer: tl.tensor,
    page_table: tl.tensor,  # int32 [S, M]
    position: tl.tensor,
    slot: tl.tensor,
    used: tl.tensor,
    out: tl.tensor,  # f32 [R, COUNT]
    R: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    DPAD: tl.constexpr,  # a power of two, at least D and 16
    L: tl.constexpr,
    PAGES: tl.constexpr,
    E: tl.constexpr,
    S: tl.constexpr,
    M: tl.constexpr,
    GROUP: tl.constexpr,  # tokens of a block
    COUNT: tl.constexpr,
    FACTOR: tl.constexpr,
    ROWS: tl.constexpr,  # rows of a tile
    BLOCKS: tl.constexpr,  # blocks of a tile
    SPAN: tl.constexpr,  # rows of the batch among which a program takes tiles
    ASM: tl.constexpr,
) -> None:
    """Grid (ceil(R / SPAN), ceil(COUNT / BLOCKS)). FACTOR times the sum of the heads in ascending order."""
    plane = clamped(tl.load(layer), L) * PAGES
    live_rows = tl.minimum(tl.load(used), R)
    d = tl.arange(0, DPAD)
    first = tl.program_id(1) * BLOCKS
    block = first + tl.arange(0, BLOCKS)
    first_row = tl.program_id(0) * SPAN
    for lead in range(first_row, tl.minimum(first_row + SPAN, R)):
        row = lead + tl.arange(0, ROWS)
        begins, ours, border = tile_at(lead, row, slot, live_rows, R, ROWS)
        if begins:
            live = (ours >= 0) & (ours < S) & (row < tl.minimum(border, live_rows))
            at = tl.load(position + row, mask=live, other=-1)
            complete = tl.where((at >= 0) & (at < M * E * GROUP), (at + 1) // GROUP, 0)
            most = tl.max(complete, axis=0)
            total = tl.zeros((ROWS, BLOCKS), tl.float32)
            if first < most:
                page = page_at(page_table + ours * M, block // E, block < most, PAGES) + plane.to(tl.int64)
                keys = tl.load(
                    index + (page * E + block % E)[:, None] * D + d[None, :],
                    mask=(block < most)[:, None] & (d < D)[None, :],
                    other=0.0,
                )
                for h in tl.static_range(H):
                    queries = tl.load(
                        q + (row * H + h)[:, None] * D + d[None, :],
                        mask=(complete > 0)[:, None] & (d < D)[None, :],
                        other=0.0,
                    )
                    product = dot(queries, tl.trans(keys), tl.zeros((ROWS, BLOCKS), tl.float32), ASM)
                    total += tl.where(product <= 0.0, 0.0, product)  # NaN stays
                total *= FACTOR
            tl.store(
                out + row[:, None].to(tl.int64) * COUNT + block[None, :],
                tl.where(block[None, :] < complete[:, None], total, float("-inf")),
                mask=(row < border)[:, None] & (block < COUNT)[None, :],
            )


@triton.jit
def ordered(x: tl.tensor) -> tl.tensor:
    """float32 x as a uint32 that is the greater the later x comes in the total order of IEEE 754."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, ~bits, bits | -2147483648).to(tl.uint32, bitcast=True)


@triton.jit
def select(
    scores: tl.tensor,  # f32 [R, N]
    out: tl.tensor,  # int32 [R, COUNT]
    N: tl.constexpr,
    COUNT: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    """Grid (R,): the numbers of the COUNT highest scores, ascending, then N in place of those that are -inf.

    Byte by byte, from the top: how many scores share the bytes found so far and have each value of the next byte says
    which value the COUNT-th highest has. What equals it is taken from the front.
    """
    scores += tl.program_id(0).to(tl.int64) * N
    out += tl.program_id(0) * COUNT
    o = tl.arange(0, CHUNK)
    digits = tl.arange(0, 256)
    found = tl.zeros((), tl.uint32)
    wanted = COUNT
    for step in tl.static_range(4):
        counts = tl.zeros((256,), tl.int32)
        for start in range(0, N, CHUNK):
            x = ordered(tl.load(scores + start + o, mask=start + o < N, other=0.0))
            mine = start + o < N
            if step > 0:
                mine = mine & ((x >> (32 - 8 * step)) == found)
            counts += tl.histogram(((x >> (24 - 8 * step)) & 255).to(tl.int32), 256, mask=mine)
        from_here = tl.cumsum(counts, axis=0, reverse=True)
        digit = tl.sum((from_here >= wanted).to(tl.int32), axis=0) - 1
        wanted -= tl.sum(tl.where(digits > digit, counts, 0), axis=0)
        found = (found << 8) | digit.to(tl.uint32)
    taken = 0
    equal_before = 0
    for start in range(0, N, CHUNK):
        score = tl.load(scores + start + o, mask=start + o < N, other=float("-inf"))
        x = ordered(score)
        inside = start + o < N
        equal = ((x == found) & inside).to(tl.int32)
        rank = equal_before + tl.cumsum(equal, axis=0)
        mine = inside & (score != float("-inf")) & ((x > found) | ((equal == 1) & (rank <= wanted)))
        place = taken + tl.cumsum(mine.to(tl.int32), axis=0) - 1
        tl.store(out + place, start + o, mask=mine)
        taken += tl.sum(mine.to(tl.int32), axis=0)
        equal_before += tl.sum(equal, axis=0)
    for start in range(0, COUNT, CHUNK):
        place = start + o
        tl.store(out + place, tl.full((CHUNK,), N, tl.int32), mask=(place >= taken) & (place < COUNT))
