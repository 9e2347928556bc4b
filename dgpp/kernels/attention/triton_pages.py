"""Paged attention as Triton kernels: rows written to the cache, blocks of tokens attended to, splits merged.

Order, of one row and query head: the positions are cut into splits of SPLIT tokens, a split into blocks of BLOCK.
Within a split, blocks ascend from m = -inf, l = 0, acc = 0; s_t = dot(k_t, q) * scale; m' = max(m, max_t s_t);
p_t = bfloat16(exp_f32(s_t - m')); a = exp_f32(m - m'); l = l * a + sum_t p_t; acc = acc * a and then the block's
p_t * v_t on top, on the matrix unit. Splits are merged in ascending order by the same rule, and out = acc / l. Tokens
that a row does not see change none of its values, so it does not matter how many rows share a tile or where a tile's
walk ends. Tokens, and the head dimension, are the long side of the matrix instruction; rows and heads the other.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.exp import exp_f32


@triton.jit
def dot(a: tl.tensor, b: tl.tensor, acc: tl.tensor, ASM: tl.constexpr) -> tl.tensor:
    """acc + a @ b."""
    if ASM:
        acc = tl.dot(a, b, acc)
    else:
        acc = tl.dot(a.to(tl.float32), b.to(tl.float32), acc)  # the interpreter multiplies no bfloat16
    return acc


@triton.jit
def write(
    k: tl.tensor,  # bf16 [R, WIDTH], likewise v
    v: tl.tensor,
    cache_k: tl.tensor,  # bf16 [L, PAGES, P, WIDTH], likewise cache_v; `new_k` and `new_v` are the same memory
    cache_v: tl.tensor,
    layer: tl.tensor,
    page_table: tl.tensor,  # int32 [S, M]
    position: tl.tensor,
    slot: tl.tensor,
    used: tl.tensor,
    new_k: tl.tensor,
    new_v: tl.tensor,
    L: tl.constexpr,
    PAGES: tl.constexpr,
    P: tl.constexpr,
    S: tl.constexpr,
    M: tl.constexpr,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Grid (R,): one row's keys and values go to their page."""
    row = tl.program_id(0)
    at = tl.load(position + row)
    mine = tl.load(slot + row)
    live = (row < tl.load(used)) & (at >= 0) & (at < M * P) & (mine >= 0) & (mine < S)
    page = tl.load(page_table + mine * M + at // P, mask=live, other=0)
    page = tl.minimum(tl.maximum(page, 0), PAGES - 1)
    place = tl.minimum(tl.maximum(tl.load(layer), 0), L - 1)
    to = ((place * PAGES + page).to(tl.int64) * P + at % P) * WIDTH
    e = tl.arange(0, BLOCK)
    mask = live & (e < WIDTH)
    tl.store(new_k + to + e, tl.load(k + row * WIDTH + e, mask=mask), mask=mask)
    tl.store(new_v + to + e, tl.load(v + row * WIDTH + e, mask=mask), mask=mask)


@triton.jit
def attend(
    q: tl.tensor,  # bf16 [R, H, D]
    cache_k: tl.tensor,  # bf16 [L, PAGES, P, K, D], likewise cache_v
    cache_v: tl.tensor,
    layer: tl.tensor,
    page_table: tl.tensor,
    position: tl.tensor,
    slot: tl.tensor,
    kv_index: tl.tensor,  # int32 [H]
    used: tl.tensor,
    acc_out: tl.tensor,  # f32 [splits, R, H, D]: sums not yet divided; or [R, H, D], the result
    top_out: tl.tensor,  # f32 [splits, R, H]
    length_out: tl.tensor,
    SCALE: tl.constexpr,
    R: tl.constexpr,
    H: tl.constexpr,
    HPAD: tl.constexpr,  # a power of two, at least H
    K: tl.constexpr,
    D: tl.constexpr,
    L: tl.constexpr,
    PAGES: tl.constexpr,
    P: tl.constexpr,
    S: tl.constexpr,
    M: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,  # rows of a tile
    HEADS: tl.constexpr,  # heads of a tile, which share a key/value head; ROWS * HEADS is at least 16
    WHOLE: tl.constexpr,  # all splits in one program, which also divides
    ASM: tl.constexpr,
) -> None:
    """Grid (row tiles, K * ceil(H / HEADS), splits or 1)."""
    CHUNKS: tl.constexpr = (H + HEADS - 1) // HEADS
    N: tl.constexpr = ROWS * HEADS
    kv = tl.program_id(1) // CHUNKS
    place = tl.minimum(tl.maximum(tl.load(layer), 0), L - 1)
    live_rows = tl.minimum(tl.load(used), R)

    # Column c of the tile: a row, and the query head that is the (c % HEADS)-th of this chunk with this key head.
    c = tl.arange(0, N)
    h = tl.arange(0, HPAD)
    match = ((h < H) & (tl.load(kv_index + h, mask=h < H, other=-1) == kv)).to(tl.int32)
    rank = tl.cumsum(match, axis=0) - 1
    wanted = c % HEADS + (tl.program_id(1) % CHUNKS) * HEADS
    picked = (rank[None, :] == wanted[:, None]) & (match[None, :] == 1)
    head = tl.sum(tl.where(picked, h[None, :], 0), axis=1)
    chosen = tl.sum(picked.to(tl.int32), axis=1) == 1
    row = tl.program_id(0) * ROWS + c // HEADS
    at = tl.load(position + row, mask=row < live_rows, other=-1)
    mine = tl.load(slot + row, mask=row < live_rows, other=-1)
    live = chosen & (at >= 0) & (at < M * P) & (mine >= 0) & (mine < S)

    d = tl.arange(0, D)
    t = tl.arange(0, BLOCK)
    index = row * H + head
    queries = tl.load(q + index[None, :] * D + d[:, None], mask=live[None, :], other=0.0)
    total_top = tl.full((N,), float("-inf"), tl.float32)
    total_length = tl.zeros((N,), tl.float32)
    total = tl.zeros((D, N), tl.float32)
    for j in range(ROWS):
        # The tile's rows of one slot are taken together, when the first of them comes.
        this = tl.program_id(0) * ROWS + j
        ours = tl.load(slot + this, mask=this < live_rows, other=-1)
        before = tl.load(slot + this - 1, mask=(this < live_rows) & (j > 0), other=-1)
        seen = live & (mine == ours) & (ours != before)
        stop = tl.max(tl.where(seen, at, -1), axis=0) + 1
        first_split = 0 if WHOLE else tl.program_id(2)
        last_split = tl.cdiv(stop, SPLIT) if WHOLE else first_split + 1
        for split in range(first_split, last_split):
            top = tl.full((N,), float("-inf"), tl.float32)
            length = tl.zeros((N,), tl.float32)
            acc = tl.zeros((D, N), tl.float32)
            for start in range(split * SPLIT, tl.minimum(split * SPLIT + SPLIT, stop), BLOCK):
                token = start + t
                inside = token < stop
                page = tl.load(page_table + ours * M + token // P, mask=inside, other=0)
                page = tl.minimum(tl.maximum(page, 0), PAGES - 1)
                from_ = (((place * PAGES + page).to(tl.int64) * P + token % P) * K + kv) * D
                keys = tl.load(cache_k + from_[:, None] + d[None, :], mask=inside[:, None], other=0.0)
                values = tl.load(cache_v + from_[:, None] + d[None, :], mask=inside[:, None], other=0.0)
                score = dot(keys, queries, tl.zeros((BLOCK, N), tl.float32), ASM) * SCALE
                score = tl.where(seen[None, :] & (token[:, None] <= at[None, :]), score, float("-inf"))
                new_top = tl.maximum(top, tl.max(score, axis=0))
                base = tl.where(new_top == float("-inf"), 0.0, new_top)
                weight = exp_f32(score - base[None, :]).to(tl.bfloat16)
                shrink = exp_f32(top - base)
                length = length * shrink + tl.sum(weight.to(tl.float32), axis=0)
                acc = dot(tl.trans(values), weight, acc * shrink[None, :], ASM)
                top = new_top
            if WHOLE:
                new_top = tl.maximum(total_top, top)
                base = tl.where(new_top == float("-inf"), 0.0, new_top)
                kept = exp_f32(total_top - base)
                added = exp_f32(top - base)
                total_length = total_length * kept + length * added
                total = total * kept[None, :] + acc * added[None, :]
                total_top = new_top
            else:
                # A tile of one program and split holds one slot's rows per pass, the others' columns stay apart.
                total_top = tl.where(seen, top, total_top)
                total_length = tl.where(seen, length, total_length)
                total = tl.where(seen[None, :], acc, total)
    inside_out = chosen & (row < R)
    if WHOLE:
        result = tl.div_rn(total, tl.broadcast_to(tl.where(live, total_length, 1.0)[None, :], (D, N)))
        tl.store(acc_out + index[None, :] * D + d[:, None], result, mask=inside_out[None, :])
    else:
        place_out = tl.program_id(2).to(tl.int64) * R * H + index
        tl.store(acc_out + place_out[None, :] * D + d[:, None], total, mask=inside_out[None, :])
        tl.store(top_out + place_out, total_top, mask=inside_out)
        tl.store(length_out + place_out, total_length, mask=inside_out)


@triton.jit
def merge(
    acc: tl.tensor,  # f32 [splits, R, H, D]
    top: tl.tensor,  # f32 [splits, R, H]
    length: tl.tensor,
    position: tl.tensor,
    out: tl.tensor,  # f32 [R, H, D]
    SPLITS: tl.constexpr,
    R: tl.constexpr,
    H: tl.constexpr,
    D: tl.constexpr,
    SPLIT: tl.constexpr,
) -> None:
    """Grid (R, H): a row's splits, ascending; rows without any come out as +0."""
    index = tl.program_id(0) * H + tl.program_id(1)
    d = tl.arange(0, D)
    total_top = float("-inf")
    total_length = 0.0
    total = tl.zeros((D,), tl.float32)
    for split in range(tl.minimum(tl.load(position + tl.program_id(0)) // SPLIT + 1, SPLITS)):
        place = split * (R * H) + index
        part_top = tl.load(top + place)
        new_top = tl.maximum(total_top, part_top)
        base = tl.where(new_top == float("-inf"), 0.0, new_top)
        kept = exp_f32(total_top - base)
        added = exp_f32(part_top - base)
        total_length = total_length * kept + tl.load(length + place) * added
        total = total * kept + tl.load(acc + place * D + d) * added
        total_top = new_top
    divisor = tl.where(total_top == float("-inf"), 1.0, total_length)
    tl.store(out + index * D + d, tl.div_rn(total, tl.broadcast_to(divisor, (D,))))
