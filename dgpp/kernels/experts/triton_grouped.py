"""Pairs of rows and experts times the experts' packed matrices, the activation between them, and the fold behind.

Order, for one output: that of `dgpp.kernels.linear.triton_product`, whose tile this is; so a pair has the bits of a
linear of its own. The parts of a sum over all of K are added in ascending order, in the program that has them all
(ADD) or in `activate`: the same additions.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.experts.triton_groups import chosen
from dgpp.kernels.gated.triton_gated import swiglu_bf16
from dgpp.kernels.gpu.clamp import clamped
from dgpp.kernels.gpu.parts import edges
from dgpp.kernels.gpu.rounding import to_bf16
from dgpp.kernels.linear.triton_prepare import store_operand
from dgpp.kernels.linear.triton_product import tile


@triton.jit
def grouped(
    x: tl.tensor,  # this and the next four as in `triton_product.tile`, with places layer * HELD + expert
    factor: tl.tensor,
    w: tl.tensor,
    scale: tl.tensor,
    last: tl.tensor,
    w_2: tl.tensor,  # the second of two MATRICES, or again the first, if its outputs lie OFFSET behind
    scale_2: tl.tensor,
    last_2: tl.tensor,
    bounds: tl.tensor,  # int32 [leaves, 2]
    experts: tl.tensor,  # int32 [P], and
    used: tl.tensor,  # int32 scalar: of one row, else
    place: tl.tensor,  # int32 [T], and
    members: tl.tensor,  # int32 [T, BR]: the tables of `triton_groups`
    layer: tl.tensor,  # int32 scalars
    layer_2: tl.tensor,
    out: tl.tensor,  # f32 or bf16 [leaves, P, MATRICES * OUTPUTS], 1 leaf if ADD
    LAYERS: tl.constexpr,
    HELD: tl.constexpr,
    CHOSEN: tl.constexpr,  # pairs of one row of x
    P: tl.constexpr,
    EACH: tl.constexpr,  # pairs of one row of `experts`
    LEAVES: tl.constexpr,
    MATRICES: tl.constexpr,
    OFFSET: tl.constexpr,
    BEGIN: tl.constexpr,  # the first row of a matrix that is wanted, and
    OUTPUTS: tl.constexpr,  # how many
    IN_TURN: tl.constexpr,  # whether a program takes all leaves, and
    ADD: tl.constexpr,  # whether it then adds them
    N: tl.constexpr,  # this and the others as in `triton_product.tile`
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
    STAGES: tl.constexpr,
    BN: tl.constexpr,
    BR: tl.constexpr,
    BK: tl.constexpr,
    ASM: tl.constexpr,
) -> None:
    """Grid (T, column tiles, leaves unless IN_TURN, times the matrices).

    The tiles of pairs are the fastest, so that those of one expert find its weights in L2.
    """
    slot = tl.arange(0, BR)
    if P == EACH:
        expert = chosen(experts, tl.program_id(0), tl.load(used) * EACH, P, HELD)
        pair = tl.where(slot == 0, tl.program_id(0), -1)
    else:
        expert = tl.load(place + tl.program_id(0))
        pair = tl.load(members + tl.program_id(0) * BR + slot)
    if expert < 0:
        return
    r = tl.maximum(pair, 0) // CHOSEN
    first = tl.program_id(1) * BN
    n = tl.minimum(tl.arange(0, BN), OUTPUTS - 1 - first)
    which = tl.program_id(2) % MATRICES
    leaf = tl.program_id(2) // MATRICES
    width: tl.constexpr = MATRICES * OUTPUTS
    payload = w
    scales = scale
    behind = last
    at = tl.load(layer)
    if MATRICES == 2:  # noqa: SIM102 - known while compiling, unlike the next
        if which == 1:
            payload = w_2
            scales = scale_2
            behind = last_2
            at = tl.load(layer_2)
    matrix = clamped(at, LAYERS).to(tl.int64) * HELD + expert
    total = tl.zeros((BN, BR), tl.float32)
    # One loop with that of the steps: leaves of few steps would wait for their first weights one after the other.
    for i in tl.range(LEAVES if IN_TURN else 1, flatten=True):
        if IN_TURN:
            leaf = i
        y = tile(
            x, factor, payload, scales, behind, bounds, leaf, matrix, BEGIN + first + which * OFFSET, n, r, pair >= 0,
            expert >= 0, N, K, R, RPAD, PADDED, LENGTH, ALIGN, TAIL, CODE, PLANES, SCALE, SCALE_ROWS, SCALE_WIDTH,
            COLUMNS, LAST, UNIT, RUN, COUNT, STAGES, BN, BR, BK, ASM,
        )  # fmt: skip
        if ADD:
            total = tl.where(leaf == 0, y, total + y)
        else:
            # Of this turn: what is the same in all of them would be kept, for every output, in a register.
            row = leaf * P + pair
            column = first + which * OUTPUTS + tl.arange(0, BN)
            there = (column < (which + 1) * OUTPUTS)[:, None] & (row >= leaf * P)[None, :]
            tl.store(out + row.to(tl.int64)[None, :] * width + column[:, None], y, mask=there)
    if ADD:
        if out.dtype.element_ty == tl.bfloat16:
            total = to_bf16(total)
        n = first + tl.arange(0, BN)
        there = (n < OUTPUTS)[:, None] & (pair >= 0)[None, :]
        tl.store(out + pair.to(tl.int64)[None, :] * width + (which * OUTPUTS + n)[:, None], total, mask=there)


@triton.jit
def activate(
    gate: tl.tensor,  # f32 or bf16 [PARTS, P, STRIDE]
    up: tl.tensor,  # likewise
    experts: tl.tensor,  # int32 [P]
    bounds: tl.tensor,  # int32 [leaves, 2]
    used: tl.tensor,  # int32 scalar
    act: tl.tensor,  # bf16 [P, N]
    operand: tl.tensor,  # as in `triton_prepare.store_operand`, likewise behind
    behind: tl.tensor,
    P: tl.constexpr,
    N: tl.constexpr,
    STRIDE: tl.constexpr,
    OFFSET: tl.constexpr,  # of the first of `up`
    PARTS: tl.constexpr,
    CHOSEN: tl.constexpr,
    HELD: tl.constexpr,
    LENGTH: tl.constexpr,
    FEED: tl.constexpr,
    BLOCK: tl.constexpr,
    RPAD: tl.constexpr,
    PADDED: tl.constexpr,
    PLANES: tl.constexpr,
    UNIT: tl.constexpr,
    RUN: tl.constexpr,
    EXPONENT: tl.constexpr,
    GROUP: tl.constexpr,
) -> None:
    """Grid (P, leaves, blocks of a leaf). Zeros for pairs whose expert is not here, and for rows that are none."""
    pair = tl.program_id(0)
    leaf = tl.program_id(1)
    start, length = edges(bounds, leaf, LENGTH)
    j = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    live = tl.load(used) * CHOSEN
    here = chosen(experts, pair, live, P, HELD) >= 0
    at = pair.to(tl.int64) * STRIDE + start + j
    mask = here & (j < length)
    first = tl.load(gate + at, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(up + at + OFFSET, mask=mask, other=0.0).to(tl.float32)
    for part in tl.static_range(1, PARTS):
        first += tl.load(gate + at + part * P * STRIDE, mask=mask, other=0.0)
        second += tl.load(up + at + part * P * STRIDE + OFFSET, mask=mask, other=0.0)
    y = swiglu_bf16(first, second)
    tl.store(act + pair.to(tl.int64) * N + start + j, y, mask=j < length)
    if FEED:
        store_operand(
            y.to(tl.float32), tl.program_id(2) * BLOCK, pair, leaf, length, pair < live, operand, behind,
            RPAD, PADDED, PLANES, UNIT, RUN, EXPONENT, GROUP, BLOCK,
        )  # fmt: skip


@triton.jit
def fold(
    each: tl.tensor,  # f32 [LEAVES, R * CHOSEN, SOME]
    experts: tl.tensor,  # int32 [R * CHOSEN]
    weights: tl.tensor,  # bf16 [R * CHOSEN]
    used: tl.tensor,  # int32 scalar
    before: tl.tensor,  # the same memory as total, or anything
    total: tl.tensor,  # f32 [LEAVES, R, D]
    R: tl.constexpr,
    D: tl.constexpr,
    BEGIN: tl.constexpr,  # the first of the columns at hand, and
    SOME: tl.constexpr,  # how many
    CHOSEN: tl.constexpr,
    HELD: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Grid (R, blocks of SOME, LEAVES): rounded(weight * expert), added from +0 in the order of the row's experts."""
    row = tl.program_id(0)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    leaf = tl.program_id(2).to(tl.int64)
    live = tl.load(used) * CHOSEN
    acc = tl.zeros((BLOCK,), tl.float32)
    for j in tl.static_range(CHOSEN):
        pair = row * CHOSEN + j
        here = chosen(experts, pair, live, R * CHOSEN, HELD) >= 0
        y = tl.load(each + (leaf * (R * CHOSEN) + pair) * SOME + d, mask=here & (d < SOME), other=0.0)
        acc += tl.load(weights + pair).to(tl.float32) * y
    tl.store(total + (leaf * R + row) * D + BEGIN + d, acc, mask=d < SOME)
