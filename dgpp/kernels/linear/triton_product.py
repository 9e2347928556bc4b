"""Rows times a packed weight on the matrix units: the sum of a tile over a range of K, for all formats.

Order, for one output: bfloat16 weights go through one float32 accumulator, in ascending order of K. With every other
code the sum of each GROUP weights (128, or fewer where scales or ranges cut them) starts from +0, low nibbles before
high ones and otherwise in the order of `triton_decode.permuted`, and joins the total in ascending order, by one fused
multiply-add with the group's scale (1 where it has none). The number of rows and the tile sizes move no addition, as
long as the instruction class is that of `triton_tiles`.

Several E8M0 scales in a group: each is multiplied into the operand relative to the largest, S, and S into the group's
sum. LIFT enlarges the operand by a power of two, taken back at the end, so that f16 holds small scales too: every code
is exact at a scale down to 2^-32 S (E2M1) or 2^-22 S (E4M3). Below, a weight is off by at most 2^-34 S (E2M1), or
2^-32 S (E4M3; under 2^-31 S it counts as zero, at most 2^-23 S). A float32 sum drops as much of its largest term: it is
lost only where the group's largest scale has no weights that need it. A NaN scale is the largest and makes the sum NaN.

A group's sum is used at once, so the matrix unit is idle before the next group's codes are decoded: with operands in
registers it must be, or the assembler puts a wait behind every single instruction.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.rounding import quotient
from dgpp.kernels.linear.triton_decode import (
    BF16,
    E2M1,
    E4M3,
    decode,
    decode_pairs,
    decode_words,
    e4m3,
    e4m3_words,
    permuted,
    spread,
)

FEW_ROWS = tl.constexpr(32)
"""Rows of a tile up to which only those are read that count."""
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
def power_of(byte: tl.tensor) -> tl.tensor:
    """float32: 2^(b - 127) of E8M0 bytes (int32), NaN of 255."""
    bits = tl.where(byte == 0, 0x00400000, byte << 23)
    return tl.where(byte == 255, 0x7FC00000, bits).to(tl.float32, bitcast=True)


@triton.jit
def scale_at(
    scale: tl.tensor,
    g: tl.tensor,
    near: tl.tensor,  # g, or a column of the same word: words of the same place are loaded once
    end: tl.tensor,
    SCALE_ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TAIL: tl.constexpr,
) -> tl.tensor:
    """[BN]: the scales in column g of their rows, 0 past the end. Those of one or two bytes that every row has for
    itself are read by fours, the least that is copied while the program goes on."""
    BITS: tl.constexpr = scale.dtype.element_ty.primitive_bitwidth
    PER: tl.constexpr = 32 // BITS
    if PER > 1 and COLUMNS % PER == 0 and SCALE_ROWS == 1:
        words = scale.to(tl.pointer_type(tl.int32)) + near // PER
        words = (tl.load(words, mask=g < end, other=0) if TAIL else tl.load(words)) >> (g % PER * BITS)
        if BITS == 16:
            found = words.to(tl.int16).to(scale.dtype.element_ty, bitcast=True)
        else:
            found = words.to(tl.uint8)
    elif TAIL:
        found = tl.load(scale + g, mask=g < end, other=0)
    else:
        found = tl.load(scale + g)
    return found


@triton.jit
def scale_of(
    scale: tl.tensor,  # pointers [BN] to the first scales of the rows
    g: tl.tensor,  # the column of scales of a group
    near: tl.tensor,  # as in `scale_at`
    end: tl.tensor,  # the column of scales that the range ends before
    SCALE: tl.constexpr,
    SCALE_ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TAIL: tl.constexpr,
    BN: tl.constexpr,
) -> tl.tensor:
    """float32 [BN]: what the sums of a group are multiplied by; 0 past the end, 1 where the operand has it."""
    if SCALE == NUMBERS:
        number = scale_at(scale, g, near, end, SCALE_ROWS, COLUMNS, TAIL).to(tl.float32)
    elif SCALE == E8M0:
        number = power_of(scale_at(scale, g, near, end, SCALE_ROWS, COLUMNS, TAIL).to(tl.int32))
    else:
        number = tl.full((BN,), 1.0, tl.float32)
    return number


@triton.jit
def largest_of(
    scale: tl.tensor, at: tl.tensor, end: tl.tensor, PER: tl.constexpr, SCALE_WIDTH: tl.constexpr, WORDS: tl.constexpr
) -> tl.tensor:
    """int32 [BN]: the largest of the PER bytes of scales of the group at `at`."""
    if WORDS:
        word = tl.load(scale.to(tl.pointer_type(tl.int32)) + at // (SCALE_WIDTH * PER))
        most = word & 255
        for i in tl.static_range(1, PER):
            most = tl.maximum(most, (word >> (8 * i)) & 255)
    else:
        most = tl.load(scale + at // SCALE_WIDTH, mask=at // SCALE_WIDTH < end, other=0).to(tl.int32)
        for i in tl.static_range(1, PER):
            g = at // SCALE_WIDTH + i
            most = tl.maximum(most, tl.load(scale + g, mask=g < end, other=0).to(tl.int32))
    return most


@triton.jit
def several(scale: tl.tensor, columns: tl.tensor, end: tl.tensor, TAIL: tl.constexpr) -> tl.tensor:
    """[BN, columns]: scales of the rows, or words of them, 0 past the end."""
    if TAIL:
        found = tl.load(scale[:, None] + columns[None, :], mask=columns[None, :] < end, other=0)
    else:
        found = tl.load(scale[:, None] + columns[None, :])
    return found


@triton.jit
def piece(
    acc: tl.tensor,
    w: tl.tensor,  # pointers [BN, EACH / BYTES] to the codes
    x: tl.tensor,  # pointers [EACH * PLANES, BR] to their activations
    live: tl.tensor,  # [BR]: which rows count; up to FEW_ROWS the others are not read
    undo: tl.tensor,  # pointers [BR] to the powers of two that undo the shifts of the rows' group
    scale: tl.tensor,
    step: tl.tensor,  # the place along K that the step starts at,
    at: tl.tensor,  # and the piece
    left: tl.tensor,  # columns of codes up to the range's end
    end: tl.tensor,  # the column of scales that the range ends before
    SCALE: tl.constexpr,
    SCALE_ROWS: tl.constexpr,
    SCALE_WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    LIFT: tl.constexpr,
    WORDS: tl.constexpr,
    PAIRED: tl.constexpr,  # whether the scales of a step's two groups are one pair of columns, from an even one on
    BY_TWOS: tl.constexpr,  # whether pieces begin at even columns of scales, and rows have an even number of them
    TAIL: tl.constexpr,
    CODE: tl.constexpr,
    PLANES: tl.constexpr,
    BYTES: tl.constexpr,  # of codes at a pointer: 1, or 4 as `decode_words` takes them
    BN: tl.constexpr,
    BR: tl.constexpr,
    EACH: tl.constexpr,
    UNIT: tl.constexpr,
    RUN: tl.constexpr,
    ASM: tl.constexpr,
) -> tl.tensor:
    """acc + the finished sum of one piece times its scale, by a fused multiply-add."""
    k = tl.arange(0, EACH // BYTES)
    if TAIL:
        codes = tl.load(w, mask=k[None, :] < left // BYTES, other=0)
    else:
        codes = tl.load(w)
    if CODE == BF16:
        if TAIL:
            rows = tl.load(x, mask=(k[:, None] < left) & live[None, :], other=0.0)
        elif BR <= FEW_ROWS:
            rows = tl.load(x, mask=live[None, :], other=0.0)
        else:
            rows = tl.load(x)
        return dot(codes, rows, acc, ASM)
    if BR <= FEW_ROWS:
        rows = tl.load(x, mask=live[None, :], other=0.0)
    else:
        rows = tl.load(x)
    PER: tl.constexpr = EACH * PLANES // SCALE_WIDTH
    if SCALE == IN_OPERAND or LIFT:
        every = at // SCALE_WIDTH + tl.arange(0, PER)
        if LIFT:
            s = several(scale, every, end, TAIL)
            most = largest_of(scale, at, end, PER, SCALE_WIDTH, WORDS)
            power = tl.maximum(s.to(tl.int32) - most[:, None] + (127 + LIFT), 0) << 23
            s = power.to(tl.float32, bitcast=True).to(tl.float16)
        elif ASM and BY_TWOS:
            twos = at // (2 * SCALE_WIDTH) + tl.arange(0, PER // 2)
            s = several(scale.to(tl.pointer_type(tl.int16)), twos, tl.cdiv(end, 2), TAIL)
            s = e4m3_words(s, BN, PER)
        else:
            s = e4m3(several(scale, every, end, TAIL))
        s = spread(s, BN, EACH, UNIT, RUN, SCALE_WIDTH // PLANES)
    if PLANES == 1:
        operand = decode(codes, CODE, ASM)
        if UNIT:
            operand = permuted(operand, BN, EACH, UNIT, RUN)
        if LIFT:
            operand *= s
    else:
        if BYTES == 4:
            low, high = decode_words(codes, CODE, BN, EACH)
        else:
            low, high = decode_pairs(codes, CODE)
        low = permuted(low, BN, EACH, UNIT, RUN)
        high = permuted(high, BN, EACH, UNIT, RUN)
        if SCALE == IN_OPERAND or LIFT:
            low *= s
            high *= s
        operand = tl.reshape(tl.join(low, high), (BN, EACH // UNIT, UNIT, 2))
        operand = tl.reshape(tl.permute(operand, (0, 1, 3, 2)), (BN, 2 * EACH))
    g = at // SCALE_WIDTH
    near = step // SCALE_WIDTH if PAIRED else g
    # What the sum is multiplied by is fetched while it is made, but for the shifts of many rows, for want of registers.
    number = power_of(most) if LIFT else scale_of(scale, g, near, end, SCALE, SCALE_ROWS, COLUMNS, TAIL, BN)
    if BR <= FEW_ROWS:
        undone = tl.load(undo)
    total = dot(operand, rows, tl.zeros((BN, BR), tl.float32), ASM)
    if BR > FEW_ROWS:
        undone = tl.load(undo)
    return tl.fma(total, number[:, None] * undone[None, :], acc)


@triton.jit
def tile(
    x: tl.tensor,  # bf16 [R, K], or f16 as `triton_prepare` leaves it
    factor: tl.tensor,  # f32 [leaves, groups, RPAD]
    w: tl.tensor,  # the payload [places, N, K / PLANES]
    scale: tl.tensor,  # [places, ceil(N / SCALE_ROWS), COLUMNS]
    last: tl.tensor,  # what the epilogue takes, with places in front
    bounds: tl.tensor,  # int32 [leaves, 2]
    leaf: tl.tensor,  # int32 scalar
    place: tl.tensor,  # int64 scalar: which of the matrices
    first: tl.tensor,  # int32 scalar, and
    n: tl.tensor,  # int32 [BN]: the tile's outputs are first + n
    r: tl.tensor,  # int32 [BR]: its rows of x
    live: tl.tensor,  # [BR]: which of them count
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
    COUNT: tl.constexpr,  # groups in a step: 1 or 2
    STAGES: tl.constexpr,  # of the loads under way
    BN: tl.constexpr,
    BR: tl.constexpr,
    BK: tl.constexpr,
    ASM: tl.constexpr,
) -> tl.tensor:
    """y float32 [BN, BR]: the tile's outputs for its rows, summed over one leaf."""
    WIDTH: tl.constexpr = BK // PLANES  # payload elements of a step
    EACH: tl.constexpr = WIDTH // COUNT
    GROUP: tl.constexpr = BK // COUNT
    WORDS: tl.constexpr = GROUP == 4 * SCALE_WIDTH and COLUMNS % 4 == 0 and not TAIL and ALIGN % GROUP == 0
    BY_TWOS: tl.constexpr = COLUMNS % 2 == 0 and ALIGN % (2 * SCALE_WIDTH) == 0
    PAIRED: tl.constexpr = COUNT == 2 and GROUP == SCALE_WIDTH and not TAIL and ALIGN % BK == 0
    LIFT: tl.constexpr = (15 if CODE == E2M1 else 7) if SCALE == E8M0 and GROUP > SCALE_WIDTH else 0
    k = tl.arange(0, EACH)
    e = tl.arange(0, EACH * PLANES)
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
    w_at = w + (place * N + first) * (K // PLANES) + start // PLANES + n[:, None] * (K // PLANES)
    BYTES: tl.constexpr = 4 if PLANES == 2 and ASM else 1
    if BYTES == 4:
        w_at = w_at.to(tl.pointer_type(tl.int32)) + tl.arange(0, EACH // 4)[None, :]
    else:
        w_at += k[None, :]
    if CODE == BF16:
        x_at = x + tl.minimum(r, R - 1)[None, :].to(tl.int64) * K + start + e[:, None]
    else:
        column = e // EACH * (RPAD * PADDED) + e % EACH
        x_at = x + (leaf.to(tl.int64) * PLANES * RPAD + r[None, :]) * PADDED + column[:, None]

    GROUPS: tl.constexpr = 1 if CODE == BF16 else PADDED * PLANES // GROUP
    u_at = factor + leaf * (GROUPS * RPAD) + r

    acc = tl.zeros((BN, BR), tl.float32)
    # Told of the stages, the pipeline takes the groups' numbers and shifts too: a load that goes past it comes back
    # behind all copies that were begun before it. Shifts of many rows it would copy once for every thread.
    TOLD: tl.constexpr = STAGES if BR <= FEW_ROWS else None
    for i in tl.range(steps, num_stages=TOLD):
        at = start + i * BK
        left = length // PLANES - i * WIDTH
        for j in tl.static_range(COUNT):
            acc = piece(
                acc, w_at + (i * WIDTH + j * EACH) // BYTES, x_at + i * WIDTH + j * EACH, live,
                u_at + (i * COUNT + j) * RPAD, s_at, at, at + j * GROUP, left - j * EACH, end,
                SCALE, SCALE_ROWS, SCALE_WIDTH, COLUMNS, LIFT, WORDS, PAIRED, BY_TWOS, TAIL, CODE, PLANES, BYTES, BN,
                BR, EACH, UNIT, RUN, ASM,
            )  # fmt: skip

    y = acc
    if LIFT:
        y *= 1.0 / (1 << LIFT)
    if LAST == TIMES_ROW:
        y *= tl.load(last + place * N + first + n).to(tl.float32)[:, None]
    elif LAST == TIMES:
        y *= tl.load(last + place).to(tl.float32)
    elif LAST != NOTHING:
        divisor = tl.load(last + place)
        if LAST == DIVIDED_BY_INVERSE:
            divisor = tl.div_rn(1.0, divisor)
        y = quotient(y, divisor, live[None, :])
    return y
