"""What comes before attention: rows of keys and values go to the paged cache, and every row's part is planned.

Rows are stored as bfloat16, or as the codes and scale of `dgpp.formats.cache.KVRows`. A row's plan are 16 integers,
nine of them used:

    0  the number of its own last token among those that it attends to, -1 for padding
    1  the row behind the last of the tile that begins here, this row itself if none does
    2  the tile's slot                                 3  the number behind the last token that a row of it sees
    4  the first token that a row of it sees           5  the number of tokens that all its rows see,
    6  from this one on                                7  how many tokens lie in this row's chosen blocks
    8  where in a layer the token lies that follows the last complete block

Tokens are numbered by their positions, or, where blocks are chosen, by their place among the chosen ones' tokens and
those after the last complete block. `heads` [K, 1 + H] holds how many query heads use a key/value head, and which;
`places` [R, CHOSEN] where in a layer the chosen blocks begin.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.attention.triton_places import page_at, tile_at
from dgpp.kernels.gpu.clamp import clamped

_INVERSE_448 = tl.constexpr(1 / 448)


@triton.jit
def e4m3_codes(x: tl.tensor) -> tl.tensor:
    """`dgpp.formats.minifloat.e4m3_encode` of float32 x: the nearest E4M3 code, saturating, NaN as 0x7F."""
    bits = x.to(tl.int32, bitcast=True)
    whole = bits & 0x7FFFFFFF
    magnitude = tl.minimum(whole, 0x7F800000)
    normal = ((magnitude + 0x7FFFF + ((magnitude >> 20) & 1)) >> 20) - (120 << 3)
    exponent = magnitude >> 23
    shift = tl.minimum(tl.maximum(141 - exponent, 1), 25)
    mantissa = (magnitude & 0x7FFFFF) | 0x800000
    half = (1 << (shift - 1)) - 1
    subnormal = (mantissa + half + ((mantissa >> shift) & 1)) >> shift
    code = tl.minimum(tl.where(exponent >= 121, normal, subnormal), 0x7E)
    code = code | tl.where(bits < 0, 0x80, 0)
    return tl.where(whole > 0x7F800000, 0x7F, code).to(tl.uint8)


@triton.jit
def store_rows(
    x: tl.tensor,  # bf16 [R, K, D]
    cache: tl.tensor,
    scale: tl.tensor,
    row: tl.tensor,
    to: tl.tensor,  # int64: the token's place in the cache
    live: tl.tensor,
    K: tl.constexpr,
    D: tl.constexpr,
    KPAD: tl.constexpr,
    DPAD: tl.constexpr,
    FP8: tl.constexpr,
) -> None:
    """The K heads of one row to their place."""
    head = tl.arange(0, KPAD)
    d = tl.arange(0, DPAD)
    mask = live & (head < K)[:, None] & (d < D)[None, :]
    e = head[:, None] * D + d[None, :]
    values = tl.load(x + row * (K * D) + e, mask=mask, other=0.0)
    if FP8:
        values = values.to(tl.float32)
        # The largest magnitude, by its bits: a NaN is the largest of all.
        largest = tl.max(values.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=1)
        largest = largest.to(tl.float32, bitcast=True)
        inverse = tl.div_rn(tl.full((KPAD,), 448.0, tl.float32), tl.where(largest == 0.0, 1.0, largest))
        inverse = tl.where(largest == 0.0, 0.0, inverse)
        tl.store(cache + to * (K * D) + e, e4m3_codes(values * inverse[:, None]), mask=mask)
        tl.store(scale + to * K + head, largest * _INVERSE_448, mask=live & (head < K))
    else:
        tl.store(cache + to * (K * D) + e, values, mask=mask)


@triton.jit
def plan_row(
    lead: tl.tensor,
    position: tl.tensor,
    slot: tl.tensor,
    blocks: tl.tensor,  # int32 [R, CHOSEN], with GROUP
    page_table: tl.tensor,
    used: tl.tensor,
    plan: tl.tensor,  # int32 [R, 16]
    places: tl.tensor,  # int32 [R, CHOSEN]
    PAGES: tl.constexpr,
    P: tl.constexpr,
    S: tl.constexpr,
    M: tl.constexpr,
    R: tl.constexpr,
    ROWS: tl.constexpr,
    RPAD: tl.constexpr,
    WINDOW: tl.constexpr,
    GROUP: tl.constexpr,
    CHOSEN: tl.constexpr,
    CPAD: tl.constexpr,
) -> None:
    """One row's plan."""
    live_rows = tl.minimum(tl.load(used), R)
    row = lead + tl.arange(0, RPAD)
    begins, ours, border = tile_at(lead, row, slot, live_rows, R, ROWS)
    there = (ours >= 0) & (ours < S) & (row < tl.minimum(border, live_rows))
    at = tl.load(position + row, mask=there, other=-1)
    at = tl.where(at < M * P, at, -1)
    count = 0
    tail = 0
    if GROUP:
        i = tl.arange(0, CPAD)
        number = tl.load(blocks + lead * CHOSEN + i, mask=i < CHOSEN, other=-1)
        means = (number >= 0) & (number < M * P // GROUP)
        count = tl.sum(means.to(tl.int32), axis=0) * GROUP
        table = page_table + ours * M
        means = means & (ours >= 0) & (ours < S)
        page = page_at(table, number * GROUP // P, means, PAGES)
        tl.store(places + lead * CHOSEN + i, page * P + number * GROUP % P, mask=means)
        follows = (tl.max(at, axis=0) + 1) // GROUP * GROUP
        tail = page_at(table, follows // P, (ours >= 0) & (ours < S) & (follows < M * P), PAGES) * P + follows % P
        at = tl.where(at >= 0, count + at - (at + 1) // GROUP * GROUP, -1)
    stop = tl.max(at, axis=0) + 1
    every = tl.min(tl.where(at >= 0, at, stop), axis=0) + 1
    low = tl.maximum(at - WINDOW + 1, 0) if WINDOW else tl.zeros((RPAD,), tl.int32)
    start = tl.min(tl.where(at >= 0, low, stop), axis=0)
    from_ = tl.max(tl.where(at >= 0, low, 0), axis=0)
    own = tl.sum(tl.where(row == lead, at, 0), axis=0)
    plan += lead * 16
    tl.store(plan, own)
    tl.store(plan + 1, tl.where(begins, border, lead))
    tl.store(plan + 2, ours)
    tl.store(plan + 3, stop)
    tl.store(plan + 4, start)
    tl.store(plan + 5, every)
    tl.store(plan + 6, from_)
    tl.store(plan + 7, count)
    tl.store(plan + 8, tail)


@triton.jit
def list_heads(kv: tl.tensor, kv_index: tl.tensor, heads: tl.tensor, H: tl.constexpr, HPAD: tl.constexpr) -> None:
    """The query heads that use one key/value head, ascending."""
    h = tl.arange(0, HPAD)
    mine = (h < H) & (tl.load(kv_index + h, mask=h < H, other=-1) == kv)
    place = tl.cumsum(mine.to(tl.int32), axis=0)
    tl.store(heads + kv * (H + 1), tl.sum(mine.to(tl.int32), axis=0))
    tl.store(heads + kv * (H + 1) + place, h, mask=mine)


@triton.jit
def destination(
    row: tl.tensor,
    layer: tl.tensor,
    page_table: tl.tensor,
    position: tl.tensor,
    slot: tl.tensor,
    used: tl.tensor,
    L: tl.constexpr,
    PAGES: tl.constexpr,
    P: tl.constexpr,
    S: tl.constexpr,
    M: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """(where a row's token lies among all tokens of the cache, int64; whether the row is live)."""
    at = tl.load(position + row)
    mine = tl.load(slot + row)
    live = (row < tl.load(used)) & (at >= 0) & (at < M * P) & (mine >= 0) & (mine < S)
    page = tl.load(page_table + mine * M + at // P, mask=live, other=0)
    page = clamped(page, PAGES)
    place = clamped(tl.load(layer), L)
    return (place * PAGES + page).to(tl.int64) * P + at % P, live


@triton.jit
def write(
    k: tl.tensor,  # bf16 [R, K, D]
    v: tl.tensor,  # bf16 [R, K, DV]
    cache_k: tl.tensor,  # bf16 [L, PAGES, P, K, D]; `new_k` is the same memory, and so for v
    cache_v: tl.tensor,
    layer: tl.tensor,
    page_table: tl.tensor,  # int32 [S, M]
    position: tl.tensor,
    slot: tl.tensor,
    kv_index: tl.tensor,  # int32 [H]
    blocks: tl.tensor,
    used: tl.tensor,
    new_k: tl.tensor,
    new_v: tl.tensor,
    plan: tl.tensor,
    heads: tl.tensor,
    places: tl.tensor,
    L: tl.constexpr,
    PAGES: tl.constexpr,
    P: tl.constexpr,
    S: tl.constexpr,
    M: tl.constexpr,
    R: tl.constexpr,
    H: tl.constexpr,
    K: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    HPAD: tl.constexpr,  # powers of two, at least H, K, D, DV, ROWS and CHOSEN
    KPAD: tl.constexpr,
    DPAD: tl.constexpr,
    VPAD: tl.constexpr,
    RPAD: tl.constexpr,
    CPAD: tl.constexpr,
    ROWS: tl.constexpr,  # rows of a tile at most
    WINDOW: tl.constexpr,  # 0: none
    GROUP: tl.constexpr,  # tokens of a block that may be chosen; 0: all are attended to
    CHOSEN: tl.constexpr,
) -> None:
    """Grid (max(R, K),): a row's keys and values go to their page; its plan; the list of one key/value head."""
    row = tl.program_id(0)
    if row < K:
        list_heads(row, kv_index, heads, H, HPAD)
    if row < R:
        to, live = destination(row, layer, page_table, position, slot, used, L, PAGES, P, S, M)
        store_rows(k, new_k, new_k, row, to, live, K, D, KPAD, DPAD, False)
        store_rows(v, new_v, new_v, row, to, live, K, DV, KPAD, VPAD, False)
        plan_row(
            row,
            position,
            slot,
            blocks,
            page_table,
            used,
            plan,
            places,
            PAGES,
            P,
            S,
            M,
            R,
            ROWS,
            RPAD,
            WINDOW,
            GROUP,
            CHOSEN,
            CPAD,
        )


@triton.jit
def write_fp8(
    k: tl.tensor,
    v: tl.tensor,
    codes_k: tl.tensor,  # u8 [L, PAGES, P, K, D]; `new_codes_k` is the same memory, and so for the others
    scale_k: tl.tensor,  # f32 [L, PAGES, P, K]
    codes_v: tl.tensor,
    scale_v: tl.tensor,
    layer: tl.tensor,
    page_table: tl.tensor,
    position: tl.tensor,
    slot: tl.tensor,
    kv_index: tl.tensor,
    blocks: tl.tensor,
    used: tl.tensor,
    new_codes_k: tl.tensor,
    new_scale_k: tl.tensor,
    new_codes_v: tl.tensor,
    new_scale_v: tl.tensor,
    plan: tl.tensor,
    heads: tl.tensor,
    places: tl.tensor,
    L: tl.constexpr,
    PAGES: tl.constexpr,
    P: tl.constexpr,
    S: tl.constexpr,
    M: tl.constexpr,
    R: tl.constexpr,
    H: tl.constexpr,
    K: tl.constexpr,
    D: tl.constexpr,
    DV: tl.constexpr,
    HPAD: tl.constexpr,
    KPAD: tl.constexpr,
    DPAD: tl.constexpr,
    VPAD: tl.constexpr,
    RPAD: tl.constexpr,
    CPAD: tl.constexpr,
    ROWS: tl.constexpr,
    WINDOW: tl.constexpr,
    GROUP: tl.constexpr,
    CHOSEN: tl.constexpr,
) -> None:
    """`write`, to rows of FP8."""
    row = tl.program_id(0)
    if row < K:
        list_heads(row, kv_index, heads, H, HPAD)
    if row < R:
        to, live = destination(row, layer, page_table, position, slot, used, L, PAGES, P, S, M)
        store_rows(k, new_codes_k, new_scale_k, row, to, live, K, D, KPAD, DPAD, True)
        store_rows(v, new_codes_v, new_scale_v, row, to, live, K, DV, KPAD, VPAD, True)
        plan_row(
            row,
            position,
            slot,
            blocks,
            page_table,
            used,
            plan,
            places,
            PAGES,
            P,
            S,
            M,
            R,
            ROWS,
            RPAD,
            WINDOW,
            GROUP,
            CHOSEN,
            CPAD,
        )
