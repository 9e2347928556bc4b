"""Paged attention as Triton kernels: blocks of tokens attended to, splits merged.

Order, of one row and query head: a row's tokens are numbered from 0, in dense attention by their positions, in sparse
attention by their place among those that the row attends to. They are cut into splits of SPLIT, a split into blocks of
BLOCK. Within a split, blocks ascend from the state without tokens: the block's largest score moves the top, what is
held is corrected, and the block's bfloat16(weight_t) * v_t are added on top by the matrix unit, bfloat16(weight_t) to
the length likewise. Splits are joined in ascending order, the sink last, and out = sums / length. `triton_softmax` has
the arithmetic.

Tokens that a row does not see add zeros, which change nothing, so it does not matter which rows share a tile, where a
tile's walk begins and ends, and who walks a split. The matrix unit adds tokens 16 at a time in ascending order whatever
the tile and whichever way it lies, as long as the instruction class is one.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.attention.triton_places import load_rows, places_of
from dgpp.kernels.attention.triton_softmax import columns, finished, joined, others, with_block
from dgpp.kernels.gpu.clamp import clamped


@triton.jit
def attend(
    q: tl.tensor,  # bf16 [R, H, D]
    cache_k: tl.tensor,  # bf16 [L, PAGES, P, K, D], or codes u8
    scale_k: tl.tensor,  # f32 [L, PAGES, P, K] of codes
    cache_v: tl.tensor,  # [L, PAGES, P, K, DV]
    scale_v: tl.tensor,
    layer: tl.tensor,
    page_table: tl.tensor,  # int32 [S, M]
    plan: tl.tensor,  # int32 [R, 16], see `triton_rows`, and `heads` [K, 1 + H]
    heads: tl.tensor,
    places: tl.tensor,  # int32 [R, CHOSEN], with GROUP
    sinks: tl.tensor,  # f32 [H], with SINKS
    acc_out: tl.tensor,  # f32 [splits, R, H, DV]: sums not yet divided; or [R, H, DV], the result
    top_out: tl.tensor,  # f32 [splits, R, H]
    length_out: tl.tensor,
    FACTOR: tl.constexpr,
    R: tl.constexpr,
    H: tl.constexpr,
    DPAD: tl.constexpr,  # a power of two, at least D
    K: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    L: tl.constexpr,
    PAGES: tl.constexpr,
    P: tl.constexpr,
    M: tl.constexpr,
    WINDOW: tl.constexpr,
    GROUP: tl.constexpr,
    CHOSEN: tl.constexpr,
    FP8: tl.constexpr,
    SINKS: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK: tl.constexpr,
    N: tl.constexpr,  # columns of a tile: at least ROWS * HEADS
    ROWS: tl.constexpr,  # rows of a tile
    HEADS: tl.constexpr,  # heads of a tile, which share a key/value head
    VALUES: tl.constexpr,  # columns of v of a tile
    SPAN: tl.constexpr,  # rows of the batch whose tiles a program takes
    WHOLE: tl.constexpr,  # all splits in one program, which also divides
    SWAPPED: tl.constexpr,
    ASM: tl.constexpr,
) -> None:
    """Grid (ceil(R / SPAN), K * ceil(DV / VALUES), 1 or as many as share the splits)."""
    PARTS: tl.constexpr = (DV + VALUES - 1) // VALUES
    ALIGNED: tl.constexpr = P % BLOCK == 0 and GROUP == 0
    kv = tl.program_id(1) // PARTS
    plane = clamped(tl.load(layer), L) * PAGES
    heads += kv * (H + 1)
    using = tl.load(heads)
    c = tl.arange(0, N)
    d = tl.arange(0, DPAD)
    e = (tl.program_id(1) % PARTS) * VALUES + tl.arange(0, VALUES)
    t = tl.arange(0, BLOCK)
    # Column c of a tile: a row, and one of the query heads that use this key/value head.
    first_heads = tl.load(heads + 1 + c % HEADS)
    first_row = (tl.num_programs(0) - 1 - tl.program_id(0)) * SPAN  # those with the longest walks start first
    for lead in range(first_row, tl.minimum(first_row + SPAN, R)):
        row = lead + c // HEADS
        at = tl.load(plan + row * 16, mask=row < R, other=-1)
        border = tl.load(plan + lead * 16 + 1)
        table = page_table + tl.load(plan + lead * 16 + 2) * M
        stop = tl.load(plan + lead * 16 + 3)
        start = tl.load(plan + lead * 16 + 4) if WINDOW else 0
        every = tl.load(plan + lead * 16 + 5)
        from_here = tl.load(plan + lead * 16 + 6) if WINDOW else 0
        count = tl.load(plan + lead * 16 + 7) if GROUP else 0
        tail = tl.load(plan + lead * 16 + 8) if GROUP else 0
        first_split = start // SPLIT
        share = tl.cdiv(tl.cdiv(stop, SPLIT) - first_split, tl.num_programs(2))
        begin = tl.maximum((first_split + tl.program_id(2) * share) * SPLIT, start // BLOCK * BLOCK)
        end = tl.minimum((first_split + (tl.program_id(2) + 1) * share) * SPLIT, stop)
        if (border > lead) & ((begin < end) | WHOLE):
            for chunk in range(tl.cdiv(using, HEADS)):
                within = (row < border) & (c < ROWS * HEADS) & (c % HEADS + chunk * HEADS < using)
                head = first_heads
                if chunk > 0:
                    head = tl.load(heads + 1 + chunk * HEADS + c % HEADS, mask=within, other=0)
                head = tl.where(within, head, 0)
                index = row * H + head
                last = tl.where(within, at, -1)
                low = tl.maximum(last - WINDOW + 1, 0) if WINDOW else tl.zeros((N,), tl.int32)
                queries = tl.load(
                    q + columns(index, SWAPPED) * D + others(d, SWAPPED),
                    mask=columns(last >= 0, SWAPPED) & others(d < D, SWAPPED),
                    other=0.0,
                )
                total_top = tl.full((N,), float("-inf"), tl.float32)
                total_length = tl.zeros((N,), tl.float32)
                total = tl.zeros((VALUES, N) if SWAPPED else (N, VALUES), tl.float32)
                page = tl.load(table + begin // P, mask=begin < end, other=0) if ALIGNED else 0
                for split in range(begin // SPLIT, tl.cdiv(end, SPLIT)):
                    top = tl.full((N,), float("-inf"), tl.float32)
                    length = tl.zeros((64, N) if SWAPPED else (N, 16), tl.float32)
                    acc = tl.zeros((VALUES, N) if SWAPPED else (N, VALUES), tl.float32)
                    from_here_on = tl.maximum(begin, split * SPLIT)
                    until_here = tl.minimum(end, split * SPLIT + SPLIT)
                    full = tl.minimum(tl.maximum(tl.cdiv(from_here, BLOCK) * BLOCK, from_here_on), until_here)
                    full_end = tl.maximum(tl.minimum(every, until_here) // BLOCK * BLOCK, full)
                    # Blocks of which some rows see a part (with a window), those that all see whole, and again such.
                    for stretch in tl.static_range(0 if WINDOW else 1, 3):
                        from_ = from_here_on if stretch == 0 else (full if stretch == 1 else full_end)
                        until = full if stretch == 0 else (full_end if stretch == 1 else until_here)
                        for block in range(from_, until, BLOCK):
                            inside = (block + t < stop) & (block + t >= start)
                            base, place = places_of(
                                block + t, block, page, stop, table, plane, places + lead * CHOSEN, count, tail,
                                PAGES, P, GROUP, ALIGNED,
                            )  # fmt: skip
                            keys = load_rows(
                                cache_k, scale_k, base, place, inside, kv, d, K, D, PAGES * P, DPAD != D,
                                stretch != 1, FP8,
                            )  # fmt: skip
                            values = load_rows(
                                cache_v, scale_v, base, place, inside, kv, e, K, DV, PAGES * P, DV % VALUES != 0,
                                stretch != 1, FP8,
                            )  # fmt: skip
                            if ALIGNED:  # the next block's, so that its loads need not wait for it
                                page = tl.load(table + (block + BLOCK) // P, mask=block + BLOCK < end, other=0)
                            top, length, acc = with_block(
                                top, length, acc, queries, keys, values, block + t, last, low, border - lead > 1,
                                FACTOR, N, BLOCK, stretch != 1, SWAPPED, ASM,
                            )  # fmt: skip
                    # Equal numbers, so that their sum is exact.
                    sums = tl.sum(length, axis=0) * (1 / 64) if SWAPPED else tl.sum(length, axis=1) * (1 / 16)
                    if WHOLE:
                        total_top, total_length, total = joined(
                            total_top, total_length, total, top, sums, acc, SWAPPED, ASM
                        )
                    else:
                        out = index.to(tl.int64) + split * (R * H)
                        tl.store(
                            acc_out + columns(out, SWAPPED) * DV + others(e, SWAPPED),
                            acc,
                            mask=columns(within, SWAPPED) & others(e < DV, SWAPPED),
                        )
                        if tl.program_id(1) % PARTS == 0:
                            tl.store(top_out + out, top, mask=within)
                            tl.store(length_out + out, sums, mask=within)
                if WHOLE:
                    sink = tl.full((N,), float("-inf"), tl.float32)
                    if SINKS:
                        sink = tl.load(sinks + head, mask=within, other=float("-inf"))
                    tl.store(
                        acc_out + columns(index, SWAPPED) * DV + others(e, SWAPPED),
                        finished(total_top, total_length, total, sink, last >= 0, SWAPPED, ASM),
                        mask=columns(within, SWAPPED) & others(e < DV, SWAPPED),
                    )


@triton.jit
def merge(
    acc: tl.tensor,  # f32 [splits, R, H, DV]
    top: tl.tensor,  # f32 [splits, R, H]
    length: tl.tensor,
    plan: tl.tensor,
    sinks: tl.tensor,
    out: tl.tensor,  # f32 [R, H, DV]
    R: tl.constexpr,
    H: tl.constexpr,
    DV: tl.constexpr,
    WINDOW: tl.constexpr,
    SINKS: tl.constexpr,
    SPLIT: tl.constexpr,
    VALUES: tl.constexpr,
    UNROLL: tl.constexpr,
    ASM: tl.constexpr,
) -> None:
    """Grid (R, H, ceil(DV / VALUES)): a row's splits, ascending; padding rows come out as +0."""
    row = tl.program_id(0)
    head = tl.program_id(1)
    e = tl.program_id(2) * VALUES + tl.arange(0, VALUES)
    at = tl.load(plan + row * 16)
    until = tl.where(at >= 0, at // SPLIT + 1, 0)
    one = tl.arange(0, 1)
    total_top = tl.full((1,), float("-inf"), tl.float32)
    total_length = tl.zeros((1,), tl.float32)
    total = tl.zeros((1, VALUES), tl.float32)
    for start in range(tl.maximum(at - WINDOW + 1, 0) // SPLIT if WINDOW else 0, until, UNROLL):
        for i in tl.static_range(UNROLL):
            there = start + i + one < until
            place = (row * H + head + one).to(tl.int64) + (start + i) * (R * H)
            more_top = tl.load(top + place, mask=there, other=float("-inf"))
            more_length = tl.load(length + place, mask=there, other=0.0)
            more = tl.load(acc + place[:, None] * DV + e[None, :], mask=there[:, None] & (e < DV)[None, :], other=0.0)
            total_top, total_length, total = joined(
                total_top, total_length, total, more_top, more_length, more, False, ASM
            )
    sink = tl.full((1,), float("-inf"), tl.float32)
    if SINKS:
        sink = tl.load(sinks + head + one)
    result = finished(total_top, total_length, total, sink, (at + one) >= 0, False, ASM)
    tl.store(out + (row * H + head) * DV + e[None, :], result, mask=(e < DV)[None, :])
