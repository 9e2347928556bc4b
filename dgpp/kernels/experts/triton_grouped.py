"""Pairs of rows and experts times the experts' packed matrices, the activation between them, and the fold behind.

Order, for one output: that of `dgpp.kernels.linear.triton_product`, whose tile this is; so a pair has the bits of a
linear of its own. The parts of a sum over all of K are added in ascending order, in the program that has them all
(WHOLE) or in `activate`: the same additions.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.exp import exp_f32
from dgpp.kernels.gpu.rounding import to_bf16
from dgpp.kernels.linear.triton_product import tile


@triton.jit
def activated(gate: tl.tensor, up: tl.tensor) -> tl.tensor:
    """bf16(bf16(silu(bf16(gate))) * bf16(up)) of float32."""
    gate = to_bf16(gate).to(tl.float32)
    opened = to_bf16(tl.div_rn(gate, 1.0 + exp_f32(-gate))).to(tl.float32)
    return to_bf16(opened * to_bf16(up).to(tl.float32))


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
    place: tl.tensor,  # int32 [T] and
    members: tl.tensor,  # int32 [T, BR], as in `triton_groups`
    layer: tl.tensor,  # int32 scalars
    layer_2: tl.tensor,
    out: tl.tensor,  # f32 or bf16 [leaves, P, MATRICES * OUTPUTS], 1 leaf if WHOLE; bf16 [P, OUTPUTS] if GATED
    LAYERS: tl.constexpr,
    HELD: tl.constexpr,
    CHOSEN: tl.constexpr,  # pairs of one row of x
    P: tl.constexpr,
    LEAVES: tl.constexpr,
    MATRICES: tl.constexpr,
    OFFSET: tl.constexpr,
    OUTPUTS: tl.constexpr,  # of one matrix
    WHOLE: tl.constexpr,  # whether a program adds all leaves
    GATED: tl.constexpr,  # whether it opens the second matrix's outputs with the first's
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
    BN: tl.constexpr,
    BR: tl.constexpr,
    BK: tl.constexpr,
    ASM: tl.constexpr,
) -> None:
    """Grid (T, column tiles, 1 or leaves, times the matrices unless GATED).

    The tiles of pairs are the fastest, so that those of one expert find its weights in L2.
    """
    expert = tl.load(place + tl.program_id(0))
    if expert < 0:
        return
    pair = tl.load(members + tl.program_id(0) * BR + tl.arange(0, BR))
    r = tl.maximum(pair, 0) // CHOSEN
    first = tl.program_id(1) * BN
    inside = ((first + tl.arange(0, BN))[:, None] < OUTPUTS) & (pair[None, :] >= 0)
    n = tl.minimum(tl.arange(0, BN), OUTPUTS - 1 - first)
    begin = tl.program_id(2)
    PIECES: tl.constexpr = (LEAVES if WHOLE else 1) * (2 if GATED else 1)
    which = begin % MATRICES
    leaf = begin // MATRICES
    total = tl.zeros((BN, BR), tl.float32)
    gate = total
    for i in range(PIECES):
        if WHOLE:
            leaf = i % LEAVES
        if GATED:
            which = i // LEAVES
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
        matrix = tl.minimum(tl.maximum(at, 0), LAYERS - 1).to(tl.int64) * HELD + expert
        y = tile(
            x, factor, payload, scales, behind, bounds, leaf, matrix, first + which * OFFSET, n, r, expert >= 0,
            N, K, R, RPAD, PADDED, LENGTH, ALIGN, TAIL, CODE, PLANES, SCALE, SCALE_ROWS, SCALE_WIDTH, COLUMNS, LAST,
            UNIT, RUN, COUNT, BN, BR, BK, ASM,
        )  # fmt: skip
        if WHOLE:
            if GATED:
                gate = tl.where(i == LEAVES, total, gate)
            total = tl.where(leaf == 0, y, total + y)
        else:
            total = y
    if GATED:
        out_at = out + pair[None, :].to(tl.int64) * OUTPUTS + first + tl.arange(0, BN)[:, None]
        tl.store(out_at, activated(gate, total), mask=inside)
    else:
        row = pair[None, :].to(tl.int64)
        if not WHOLE:
            row += leaf.to(tl.int64) * P
        out_at = out + (row * MATRICES + which) * OUTPUTS + first + tl.arange(0, BN)[:, None]
        if out.dtype.element_ty == tl.bfloat16:
            total = to_bf16(total)
        tl.store(out_at, total, mask=inside)


@triton.jit
def activate(
    gate: tl.tensor,  # f32 or bf16 [PARTS, P, STRIDE]
    up: tl.tensor,  # likewise
    experts: tl.tensor,  # int32 [P]
    used: tl.tensor,  # int32 scalar
    act: tl.tensor,  # bf16 [P, N]
    P: tl.constexpr,
    N: tl.constexpr,
    STRIDE: tl.constexpr,
    OFFSET: tl.constexpr,  # of the first of `up`
    PARTS: tl.constexpr,
    CHOSEN: tl.constexpr,
    HELD: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Grid (P, blocks of N). Zeros for pairs whose expert is not here, and for rows that are none."""
    pair = tl.program_id(0)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    expert = tl.load(experts + pair)
    here = (pair < tl.load(used) * CHOSEN) & (expert >= 0) & (expert < HELD)
    at = pair.to(tl.int64) * STRIDE + n
    mask = here & (n < N)
    first = tl.load(gate + at, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(up + at + OFFSET, mask=mask, other=0.0).to(tl.float32)
    for part in tl.static_range(1, PARTS):
        first += tl.load(gate + at + part * P * STRIDE, mask=mask, other=0.0)
        second += tl.load(up + at + part * P * STRIDE + OFFSET, mask=mask, other=0.0)
    tl.store(act + pair.to(tl.int64) * N + n, activated(first, second), mask=n < N)


@triton.jit
def fold(
    each: tl.tensor,  # f32 [LEAVES, R * CHOSEN, D]
    experts: tl.tensor,  # int32 [R * CHOSEN]
    weights: tl.tensor,  # bf16 [R * CHOSEN]
    used: tl.tensor,  # int32 scalar
    total: tl.tensor,  # f32 [LEAVES, R, D]
    R: tl.constexpr,
    D: tl.constexpr,
    CHOSEN: tl.constexpr,
    HELD: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Grid (R, blocks of D, LEAVES): rounded(weight * expert), added from +0 in the order of the row's experts."""
    row = tl.program_id(0)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    leaf = tl.program_id(2).to(tl.int64)
    live = row < tl.load(used)
    acc = tl.zeros((BLOCK,), tl.float32)
    for j in tl.static_range(CHOSEN):
        pair = row * CHOSEN + j
        expert = tl.load(experts + pair)
        here = live & (expert >= 0) & (expert < HELD)
        y = tl.load(each + (leaf * (R * CHOSEN) + pair) * D + d, mask=here & (d < D), other=0.0)
        acc += tl.load(weights + pair).to(tl.float32) * y
    tl.store(total + (leaf * R + row) * D + d, acc, mask=d < D)
