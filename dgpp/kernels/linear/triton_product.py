"""Rows times a packed weight on the matrix units, as one Triton kernel for all formats.

Order, for one output: bfloat16 weights go through one float32 accumulator, in ascending order of K. With every other
code the sum of each GROUP weights (128, or those under one scale if fewer) starts from +0, low nibbles before high ones
and otherwise in the order of `triton_decode.permuted`, and joins the total in ascending order, by one fused
multiply-add with the group's scale (1 where it has none). The number of rows and the tile sizes move no addition, as
long as the instruction class is the same: `wgmma` on sm_90 (the weight is its left operand, 64 rows of it at a time),
`mma.sync` elsewhere.

A group's sum is used at once, so the matrix unit is idle before the next group's codes are decoded: with operands in
registers it must be, or the assembler puts a wait behind every single instruction.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.linear.triton_decode import BF16, E4M3, decode, decode_pairs, e4m3, permuted, spread

NO_SCALE = tl.constexpr(0)  # none along K
NUMBERS = tl.constexpr(1)  # floating-point numbers, applied to a group's sum
E8M0 = tl.constexpr(2)  # bytes b that stand for 2^(b - 127), likewise
IN_OPERAND = tl.constexpr(3)  # E4M3, multiplied into the operand

NOTHING = tl.constexpr(0)
TIMES_ROW = tl.constexpr(1)  # y * last[n]
TIMES = tl.constexpr(2)  # y * last
DIVIDED = tl.constexpr(3)  # y / last
DIVIDED_BY_INVERSE = tl.constexpr(4)  # y / (1 / last)


@triton.jit
def dot(w: tl.tensor, x: tl.tensor, acc: tl.tensor, ASM: tl.constexpr) -> tl.tensor:
    """acc + w @ x."""
    if ASM:
        acc = tl.dot(w, x, acc)
    else:
        acc = tl.dot(w.to(tl.float32), x.to(tl.float32), acc)  # the interpreter multiplies no bfloat16
    return acc


@triton.jit
def scale_of(
    scale: tl.tensor,  # pointers [BN] to the first scales of the rows
    at: tl.tensor,  # a place along K
    end: tl.tensor,  # the column of scales that the range ends before
    SCALE: tl.constexpr,
    SCALE_WIDTH: tl.constexpr,
    BN: tl.constexpr,
) -> tl.tensor:
    """float32 [BN]: what the sums of the group at `at` are multiplied by; 0 past the end, 1 without scales."""
    if SCALE == NUMBERS:
        number = tl.load(scale + at // SCALE_WIDTH, mask=at // SCALE_WIDTH < end, other=0).to(tl.float32)
    elif SCALE == E8M0:
        byte = tl.load(scale + at // SCALE_WIDTH, mask=at // SCALE_WIDTH < end, other=0).to(tl.int32)
        bits = tl.where(byte == 0, 0x00400000, byte << 23)
        number = tl.where(byte == 255, 0x7FC00000, bits).to(tl.float32, bitcast=True)
    else:
        number = tl.full((BN,), 1.0, tl.float32)
    return number


@triton.jit
def piece(
    acc: tl.tensor,
    codes: tl.tensor,  # [BN, EACH]
    x: tl.tensor,  # pointers [EACH, BR] to their activations
    plane: tl.tensor,  # how far the activations of high nibbles are from there
    number: tl.tensor,  # float32 [BN]: the group's scales
    scale: tl.tensor,
    at: tl.tensor,  # the place along K that the piece starts at
    end: tl.tensor,  # the column of scales that the range ends before
    SCALE: tl.constexpr,
    SCALE_WIDTH: tl.constexpr,
    TAIL: tl.constexpr,
    CODE: tl.constexpr,
    PLANES: tl.constexpr,
    BN: tl.constexpr,
    BR: tl.constexpr,
    EACH: tl.constexpr,
    UNIT: tl.constexpr,
    RUN: tl.constexpr,
    ASM: tl.constexpr,
) -> tl.tensor:
    """acc + one group's finished sum times its scale (a fused multiply-add also where there is none: Triton would make
    one product of a product and an addition)."""
    total = tl.zeros((BN, BR), tl.float32)
    if PLANES == 1:
        total = dot(decode(codes, CODE, ASM), tl.load(x), total, ASM)
    else:
        low, high = decode_pairs(codes, CODE, ASM)
        if SCALE == IN_OPERAND:
            g = at // SCALE_WIDTH + tl.arange(0, EACH * PLANES // SCALE_WIDTH)
            if TAIL:
                s = e4m3(tl.load(scale[:, None] + g[None, :], mask=g[None, :] < end, other=0))
            else:
                s = e4m3(tl.load(scale[:, None] + g[None, :]))
            s = spread(s, BN, EACH, UNIT, RUN, SCALE_WIDTH // PLANES)
            low *= s
            high *= s
        total = dot(low, tl.load(x), total, ASM)
        total = dot(high, tl.load(x + plane), total, ASM)
    return tl.fma(total, tl.broadcast_to(number[:, None], (BN, BR)), acc)


@triton.jit
def halves(tile: tl.tensor, BN: tl.constexpr, WIDTH: tl.constexpr) -> tl.tensor:
    """The left and the right half of a tile [BN, WIDTH]."""
    return tl.split(tl.permute(tl.reshape(tile, (BN, 2, WIDTH // 2)), (0, 2, 1)))


@triton.jit
def tile(
    x: tl.tensor,  # bf16 [R, K], or f16 as `triton_prepare` leaves it
    factor: tl.tensor,  # f32 [leaves, RPAD]
    w: tl.tensor,  # the payload [places, N, K / PLANES]
    scale: tl.tensor,  # [places, ceil(N / SCALE_ROWS), COLUMNS]
    last: tl.tensor,  # what the epilogue takes, with places in front
    bounds: tl.tensor,  # int32 [leaves, 2]
    leaf: tl.tensor,  # int32 scalar
    place: tl.tensor,  # int64 scalar: which of the matrices
    first: tl.tensor,  # int32 scalar, and
    n: tl.tensor,  # int32 [BN]: the tile's outputs are first + n
    r: tl.tensor,  # int32 [BR]: its rows of x
    some: tl.tensor,  # whether there is anything to do; if not, y is not defined
    N: tl.constexpr,
    K: tl.constexpr,
    R: tl.constexpr,
    RPAD: tl.constexpr,
    PADDED: tl.constexpr,
    LENGTH: tl.constexpr,  # of every leaf, when they divide K evenly; else 0
    ALIGN: tl.constexpr,  # divides every leaf's start
    TAIL: tl.constexpr,  # whether a leaf ends inside a step
    CODE: tl.constexpr,
    PLANES: tl.constexpr,  # codes in one element of the payload
    SCALE: tl.constexpr,
    SCALE_ROWS: tl.constexpr,  # rows and columns of the weight under one scale
    SCALE_WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,  # of the grid of scales
    LAST: tl.constexpr,
    UNIT: tl.constexpr,
    RUN: tl.constexpr,
    COUNT: tl.constexpr,  # groups in a step: 1, 2 or 4
    BN: tl.constexpr,
    BR: tl.constexpr,
    BK: tl.constexpr,
    ASM: tl.constexpr,
) -> tl.tensor:
    """y float32 [BN, BR]: the tile's outputs for its rows, summed over one leaf."""
    WIDTH: tl.constexpr = BK // PLANES  # payload elements of a step
    EACH: tl.constexpr = WIDTH // COUNT
    GROUP: tl.constexpr = BK // COUNT
    k = tl.arange(0, WIDTH)
    e = tl.arange(0, EACH)
    plane = RPAD * PADDED
    if CODE >= E4M3:
        w = w.to(tl.pointer_type(tl.uint8))
    s_at = scale + place * (tl.cdiv(N, SCALE_ROWS) * COLUMNS) + ((first + n) // SCALE_ROWS) * COLUMNS
    if LENGTH:
        start = leaf * LENGTH
        length = LENGTH
    else:
        start = tl.multiple_of(tl.load(bounds + 2 * leaf), ALIGN)
        length = tl.load(bounds + 2 * leaf + 1) - start
    steps = tl.where(some, tl.cdiv(length, BK), 0)

    end = tl.cdiv(start + length, SCALE_WIDTH)
    w_at = w + (place * N + first) * (K // PLANES) + start // PLANES + n[:, None] * (K // PLANES) + k[None, :]
    if CODE == BF16:
        x_at = x + tl.minimum(r, R - 1)[None, :].to(tl.int64) * K + start + e[:, None]
    else:
        x_at = x + (leaf.to(tl.int64) * PLANES * RPAD + r[None, :]) * PADDED + e[:, None]

    acc = tl.zeros((BN, BR), tl.float32)
    f0 = scale_of(s_at, start, end, SCALE, SCALE_WIDTH, BN)
    f1, f2, f3 = f0, f0, f0
    if COUNT > 1:
        f1 = scale_of(s_at, start + GROUP, end, SCALE, SCALE_WIDTH, BN)
    if COUNT > 2:
        f2 = scale_of(s_at, start + 2 * GROUP, end, SCALE, SCALE_WIDTH, BN)
        f3 = scale_of(s_at, start + 3 * GROUP, end, SCALE, SCALE_WIDTH, BN)
    for i in range(steps):
        if TAIL:
            codes = tl.load(w_at + i * WIDTH, mask=k[None, :] < length // PLANES - i * WIDTH, other=0)
        else:
            codes = tl.load(w_at + i * WIDTH)
        if UNIT:
            codes = permuted(codes, BN, WIDTH, UNIT, RUN)
        x_i = x_at + i * WIDTH
        at = start + i * BK
        # The scales of the next step are under way during this one.
        g0 = scale_of(s_at, at + BK, end, SCALE, SCALE_WIDTH, BN)
        g1, g2, g3 = g0, g0, g0
        if COUNT > 1:
            g1 = scale_of(s_at, at + BK + GROUP, end, SCALE, SCALE_WIDTH, BN)
        if COUNT > 2:
            g2 = scale_of(s_at, at + BK + 2 * GROUP, end, SCALE, SCALE_WIDTH, BN)
            g3 = scale_of(s_at, at + BK + 3 * GROUP, end, SCALE, SCALE_WIDTH, BN)
        if CODE == BF16:
            if TAIL:
                acc = dot(codes, tl.load(x_i, mask=e[:, None] < length - i * BK, other=0.0), acc, ASM)
            else:
                acc = dot(codes, tl.load(x_i), acc, ASM)
        elif COUNT == 1:
            acc = piece(
                acc, codes, x_i, plane, f0, s_at, at, end,
                SCALE, SCALE_WIDTH, TAIL, CODE, PLANES, BN, BR, EACH, UNIT, RUN, ASM,
            )  # fmt: skip
        elif COUNT == 2:
            w0, w1 = halves(codes, BN, WIDTH)
            acc = piece(
                acc, w0, x_i, plane, f0, s_at, at, end,
                SCALE, SCALE_WIDTH, TAIL, CODE, PLANES, BN, BR, EACH, UNIT, RUN, ASM,
            )  # fmt: skip
            acc = piece(
                acc, w1, x_i + EACH, plane, f1, s_at, at + GROUP, end,
                SCALE, SCALE_WIDTH, TAIL, CODE, PLANES, BN, BR, EACH, UNIT, RUN, ASM,
            )  # fmt: skip
        else:
            w01, w23 = halves(codes, BN, WIDTH)
            w0, w1 = halves(w01, BN, WIDTH // 2)
            w2, w3 = halves(w23, BN, WIDTH // 2)
            acc = piece(
                acc, w0, x_i, plane, f0, s_at, at, end,
                SCALE, SCALE_WIDTH, TAIL, CODE, PLANES, BN, BR, EACH, UNIT, RUN, ASM,
            )  # fmt: skip
            acc = piece(
                acc, w1, x_i + EACH, plane, f1, s_at, at + GROUP, end,
                SCALE, SCALE_WIDTH, TAIL, CODE, PLANES, BN, BR, EACH, UNIT, RUN, ASM,
            )  # fmt: skip
            acc = piece(
                acc, w2, x_i + 2 * EACH, plane, f2, s_at, at + 2 * GROUP, end,
                SCALE, SCALE_WIDTH, TAIL, CODE, PLANES, BN, BR, EACH, UNIT, RUN, ASM,
            )  # fmt: skip
            acc = piece(
                acc, w3, x_i + 3 * EACH, plane, f3, s_at, at + 3 * GROUP, end,
                SCALE, SCALE_WIDTH, TAIL, CODE, PLANES, BN, BR, EACH, UNIT, RUN, ASM,
            )  # fmt: skip
        f0, f1, f2, f3 = g0, g1, g2, g3

    y = acc
    if CODE != BF16:
        y *= tl.load(factor + leaf * RPAD + r)[None, :]
    if LAST == TIMES_ROW:
        y *= tl.load(last + place * N + first + n).to(tl.float32)[:, None]
    elif LAST == TIMES:
        y *= tl.load(last + place).to(tl.float32)
    elif LAST != NOTHING:
        divisor = tl.load(last + place)
        if LAST == DIVIDED_BY_INVERSE:
            divisor = tl.div_rn(1.0, divisor)
        y = tl.div_rn(y, tl.broadcast_to(divisor, (BN, BR)))
    return y


@triton.jit
def product(
    x: tl.tensor,  # this and the next five as in `tile`, with layers as places
    factor: tl.tensor,
    w: tl.tensor,
    scale: tl.tensor,
    last: tl.tensor,
    bounds: tl.tensor,
    layer: tl.tensor,  # int32 scalar
    used: tl.tensor,  # int32 scalar
    out: tl.tensor,  # f32 [leaves, R, N]
    LAYERS: tl.constexpr,
    N: tl.constexpr,  # this and the others as in `tile`
    K: tl.constexpr,
    R: tl.constexpr,
    RPAD: tl.constexpr,
    PADDED: tl.constexpr,
    LENGTH: tl.constexpr,
    ALIGN: tl.constexpr,
    TAIL: tl.constexpr,
    CODE: tl.constexpr,
    PLANES: tl.constexpr,
    SCALE: tl.constexpr,
    SCALE_ROWS: tl.constexpr,
    SCALE_WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    LAST: tl.constexpr,
    UNIT: tl.constexpr,
    RUN: tl.constexpr,
    COUNT: tl.constexpr,
    BN: tl.constexpr,
    BR: tl.constexpr,
    BK: tl.constexpr,
    ASM: tl.constexpr,
) -> None:
    """Grid (row tiles, column tiles, leaves); the tile of rows is the fastest, so that its weights stay in L2."""
    leaf = tl.program_id(2)
    first = tl.program_id(1) * BN
    place = tl.minimum(tl.maximum(tl.load(layer), 0), LAYERS - 1).to(tl.int64)
    live = tl.load(used)
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    n = tl.minimum(tl.arange(0, BN), N - 1 - first)
    y = tile(
        x, factor, w, scale, last, bounds, leaf, place, first, n, r, tl.program_id(0) * BR < live,
        N, K, R, RPAD, PADDED, LENGTH, ALIGN, TAIL, CODE, PLANES, SCALE, SCALE_ROWS, SCALE_WIDTH, COLUMNS, LAST,
        UNIT, RUN, COUNT, BN, BR, BK, ASM,
    )  # fmt: skip
    y = tl.where(r[None, :] < live, y, 0.0)
    inside = ((first + tl.arange(0, BN))[:, None] < N) & (r[None, :] < R)
    out_at = out + (leaf.to(tl.int64) * R + r[None, :]) * N + first + tl.arange(0, BN)[:, None]
    tl.store(out_at, y, mask=inside)
