"""Rows times a packed weight on the matrix units, as one Triton kernel for all formats.

Order: a K range is walked in ascending steps; within a step in the order of `triton_decode.permuted`, low nibbles
before high ones. Without GROUP, one float32 accumulator runs through the range. With it, the sum of every GROUP weights
starts from +0 and joins the total by one fused multiply-add with its scale, in ascending order. The accumulator belongs
to one output; the number of rows and the tile sizes move no addition, as long as the instruction class is the same:
`wgmma` on sm_90 (the weight is its left operand, 64 rows of it at a time), `mma.sync` elsewhere.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.linear.triton_decode import BF16, E4M3, decode, decode_pairs, e4m3, permuted, spread

NUMBERS = tl.constexpr(0)  # scales are floating-point numbers
E8M0 = tl.constexpr(1)  # scales are bytes b that stand for 2^(b - 127)

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
def scale_of(scale: tl.tensor, column: tl.tensor, end: tl.tensor, SCALE: tl.constexpr, TAIL: tl.constexpr) -> tl.tensor:
    """float32 [BN]: the scales in one column of the grid before `end`; `scale` points at the rows' first."""
    if TAIL:
        value = tl.load(scale + column, mask=column < end, other=0)  # NaN beyond the range must not meet its zeros
    else:
        value = tl.load(scale + column)
    if SCALE == NUMBERS:
        number = value.to(tl.float32)
    else:
        byte = value.to(tl.int32)
        bits = tl.where(byte == 0, 0x00400000, byte << 23)
        number = tl.where(byte == 255, 0x7FC00000, bits).to(tl.float32, bitcast=True)
    return number


@triton.jit
def piece(
    acc: tl.tensor,
    codes: tl.tensor,  # [BN, EACH]
    x: tl.tensor,  # pointers [EACH, BR] to their activations
    plane: tl.tensor,  # how far the activations of high nibbles are from there
    scale: tl.tensor,
    column: tl.tensor,
    end: tl.tensor,
    SCALE: tl.constexpr,
    TAIL: tl.constexpr,
    CODE: tl.constexpr,
    PLANES: tl.constexpr,
    BN: tl.constexpr,
    BR: tl.constexpr,
    ASM: tl.constexpr,
) -> tl.tensor:
    """acc + the finished sum of one group times its scale."""
    if PLANES == 1:
        total = dot(decode(codes, CODE, ASM), tl.load(x), tl.zeros((BN, BR), tl.float32), ASM)
    else:
        low, high = decode_pairs(codes, CODE, ASM)
        total = dot(low, tl.load(x), tl.zeros((BN, BR), tl.float32), ASM)
        total = dot(high, tl.load(x + plane), total, ASM)
    factor = scale_of(scale, column, end, SCALE, TAIL)
    return tl.fma(total, tl.broadcast_to(factor[:, None], (BN, BR)), acc)


@triton.jit
def halves(tile: tl.tensor, BN: tl.constexpr, WIDTH: tl.constexpr) -> tl.tensor:
    """The left and the right half of a tile [BN, WIDTH]."""
    return tl.split(tl.permute(tl.reshape(tile, (BN, 2, WIDTH // 2)), (0, 2, 1)))


@triton.jit
def product(
    x: tl.tensor,  # bf16 [R, K], or f16 as `triton_prepare` leaves it
    factor: tl.tensor,  # f32 [leaves, RPAD]
    w: tl.tensor,  # the payload [layers, N, K / PLANES]
    scale: tl.tensor,  # [layers, ceil(N / SCALE_ROWS), COLUMNS]
    last: tl.tensor,  # what the epilogue takes, with layers in front
    bounds: tl.tensor,  # int32 [leaves, 2]
    layer: tl.tensor,  # int32 scalar
    used: tl.tensor,  # int32 scalar
    out: tl.tensor,  # f32 [leaves, R, N]
    LAYERS: tl.constexpr,
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
    GROUP: tl.constexpr,  # weights per finished sum; 0: one sum
    SCALE: tl.constexpr,
    SCALE_ROWS: tl.constexpr,  # rows and columns of the weight under one scale
    SCALE_WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    IN_OPERAND: tl.constexpr,  # E4M3 scales that are multiplied into the operand
    LAST: tl.constexpr,
    UNIT: tl.constexpr,
    BN: tl.constexpr,
    BR: tl.constexpr,
    BK: tl.constexpr,
    ASM: tl.constexpr,
) -> None:
    """Grid (row tiles, column tiles, leaves); the tile of rows is the fastest, so that its weights stay in L2."""
    WIDTH: tl.constexpr = BK // PLANES  # payload elements of a step
    COUNT: tl.constexpr = BK // GROUP if GROUP else 1
    EACH: tl.constexpr = WIDTH // COUNT
    leaf = tl.program_id(2)
    first = tl.program_id(1) * BN
    place = tl.minimum(tl.maximum(tl.load(layer), 0), LAYERS - 1).to(tl.int64)
    live = tl.load(used)
    if LENGTH:
        start = leaf * LENGTH
        length = LENGTH
    else:
        start = tl.multiple_of(tl.load(bounds + 2 * leaf), ALIGN)
        length = tl.load(bounds + 2 * leaf + 1) - start
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    n = tl.minimum(tl.arange(0, BN), N - 1 - first)
    steps = tl.where(tl.program_id(0) * BR < live, tl.cdiv(length, BK), 0)

    end = tl.cdiv(start + length, SCALE_WIDTH)
    k = tl.arange(0, WIDTH)
    if CODE >= E4M3:
        w = w.to(tl.pointer_type(tl.uint8))
    w += (place * N + first) * (K // PLANES) + start // PLANES
    w_at = w + n[:, None] * (K // PLANES) + k[None, :]
    s_at = scale + place * (tl.cdiv(N, SCALE_ROWS) * COLUMNS) + ((first + n) // SCALE_ROWS) * COLUMNS
    e = tl.arange(0, EACH)
    if CODE == BF16:
        x_at = x + tl.minimum(r, R - 1)[None, :].to(tl.int64) * K + start + e[:, None]
    else:
        x_at = x + (leaf.to(tl.int64) * PLANES * RPAD + r[None, :]) * PADDED + e[:, None]
    plane = RPAD * PADDED

    acc = tl.zeros((BN, BR), tl.float32)
    for i in range(steps):
        if TAIL:
            codes = tl.load(w_at + i * WIDTH, mask=k[None, :] < length // PLANES - i * WIDTH, other=0)
        else:
            codes = tl.load(w_at + i * WIDTH)
        if UNIT:
            codes = permuted(codes, BN, WIDTH, UNIT)
        x_i = x_at + i * WIDTH
        column = (start + i * BK) // SCALE_WIDTH
        if GROUP == 0:
            if PLANES == 1:
                low = decode(codes, CODE, ASM)
                high = low
            else:
                low, high = decode_pairs(codes, CODE, ASM)
            if IN_OPERAND:
                g = column + tl.arange(0, BK // SCALE_WIDTH)
                if TAIL:
                    s = e4m3(tl.load(s_at[:, None] + g[None, :], mask=g[None, :] < end, other=0))
                else:
                    s = e4m3(tl.load(s_at[:, None] + g[None, :]))
                s = spread(s, BN, WIDTH, UNIT, SCALE_WIDTH // PLANES)
                low *= s
                high *= s
            if CODE == BF16 and TAIL:
                acc = dot(low, tl.load(x_i, mask=e[:, None] < length - i * BK, other=0.0), acc, ASM)
            else:
                acc = dot(low, tl.load(x_i), acc, ASM)
            if PLANES == 2:
                acc = dot(high, tl.load(x_i + plane), acc, ASM)
        elif COUNT == 1:
            acc = piece(acc, codes, x_i, plane, s_at, column, end, SCALE, TAIL, CODE, PLANES, BN, BR, ASM)
        elif COUNT == 2:
            c1 = (start + i * BK + GROUP) // SCALE_WIDTH
            w0, w1 = halves(codes, BN, WIDTH)
            acc = piece(acc, w0, x_i, plane, s_at, column, end, SCALE, TAIL, CODE, PLANES, BN, BR, ASM)
            acc = piece(acc, w1, x_i + EACH, plane, s_at, c1, end, SCALE, TAIL, CODE, PLANES, BN, BR, ASM)
        else:
            c1 = (start + i * BK + GROUP) // SCALE_WIDTH
            c2 = (start + i * BK + 2 * GROUP) // SCALE_WIDTH
            c3 = (start + i * BK + 3 * GROUP) // SCALE_WIDTH
            w01, w23 = halves(codes, BN, WIDTH)
            w0, w1 = halves(w01, BN, WIDTH // 2)
            w2, w3 = halves(w23, BN, WIDTH // 2)
            acc = piece(acc, w0, x_i, plane, s_at, column, end, SCALE, TAIL, CODE, PLANES, BN, BR, ASM)
            acc = piece(acc, w1, x_i + EACH, plane, s_at, c1, end, SCALE, TAIL, CODE, PLANES, BN, BR, ASM)
            acc = piece(acc, w2, x_i + 2 * EACH, plane, s_at, c2, end, SCALE, TAIL, CODE, PLANES, BN, BR, ASM)
            acc = piece(acc, w3, x_i + 3 * EACH, plane, s_at, c3, end, SCALE, TAIL, CODE, PLANES, BN, BR, ASM)

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
    y = tl.where(r[None, :] < live, y, 0.0)
    inside = (first + tl.arange(0, BN))[:, None] < N
    at = out + (leaf.to(tl.int64) * R + r[None, :]) * N + first + tl.arange(0, BN)[:, None]
    tl.store(at, y, mask=inside & (r[None, :] < R))
