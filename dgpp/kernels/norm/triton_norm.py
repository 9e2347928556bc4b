"""RMSNorm as Triton kernels, with the operand of the matrices that read the rows. The bits of `reference`."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.gates import sigmoid, silu
from dgpp.kernels.gpu.parts import added, edges
from dgpp.kernels.gpu.rounding import reciprocal_root, to_bf16
from dgpp.kernels.gpu.tree import tree_rows
from dgpp.kernels.linear.triton_prepare import store_operand


@triton.jit
def stream(
    x: tl.tensor,  # bf16 [R, D]
    leaves: tl.tensor,  # [4, R, D]
    at: tl.tensor,
    inside: tl.tensor,
    LEAVES: tl.constexpr,
    STRIDE: tl.constexpr,  # R * D
) -> tl.tensor:
    """float32: rows at places of [R, D], or their sum with the fold of `leaves`, rounded to bfloat16."""
    h = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if LEAVES:
        first = stored(leaves, at, inside) + stored(leaves + STRIDE, at, inside)
        second = stored(leaves + 2 * STRIDE, at, inside) + stored(leaves + 3 * STRIDE, at, inside)
        h = to_bf16(h + to_bf16(first + second).to(tl.float32)).to(tl.float32)
    return h


@triton.jit
def stored(x: tl.tensor, at: tl.tensor, inside: tl.tensor) -> tl.tensor:
    """float32: numbers rounded to bfloat16, if they are not yet."""
    value = tl.load(x + at, mask=inside, other=0.0)
    if value.dtype != tl.bfloat16:
        value = to_bf16(value)
    return value.to(tl.float32)


@triton.jit
def normed_rows(
    x: tl.tensor,  # bf16 [R, D]
    leaves: tl.tensor,  # [4, R, D] where LEAVES
    weight: tl.tensor,  # [LAYERS, D]
    layer: tl.tensor,  # int32 scalar, likewise used
    bounds: tl.tensor,  # int32 [leaves, 2]
    used: tl.tensor,
    total: tl.tensor,  # bf16 [R, D]: the sums, where LEAVES
    out: tl.tensor,  # bf16 [R, D]
    operand: tl.tensor,  # as in `store_operand`, likewise factor
    factor: tl.tensor,
    LAYERS: tl.constexpr,
    R: tl.constexpr,
    D: tl.constexpr,
    LEAVES: tl.constexpr,
    EPS: tl.constexpr,
    CENTRED: tl.constexpr,
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
    WIDTH: tl.constexpr,  # 2^LEVELS, at least D
    SPAN: tl.constexpr,  # a power of two, at most WIDTH
    LEVELS: tl.constexpr,
) -> None:
    """Grid (RPAD, leaves, blocks of a leaf): each sums the whole row and writes its block."""
    row = tl.program_id(0)
    leaf = tl.program_id(1)
    start, length = edges(bounds, leaf, LENGTH)
    place = tl.minimum(tl.maximum(tl.load(layer), 0), LAYERS - 1)
    live = row < tl.load(used)
    x += row.to(tl.int64) * D
    leaves += row.to(tl.int64) * D
    # Halves are added between rows of this tile first, which lie in one warp.
    k = tl.arange(0, WIDTH // SPAN)[:, None] * SPAN + tl.arange(0, SPAN)[None, :]
    h = stream(x, leaves, k, (k < D) & (row < R), LEAVES, R * D)
    j = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    inside = (j < length) & (row < R)
    own = stream(x, leaves, start + j, inside, LEAVES, R * D)
    w = tl.load(weight + place * D + start + j, mask=inside, other=0.0).to(tl.float32)
    mean = tree_rows(tl.reshape(h * h, (1, WIDTH)), 1, WIDTH, LEVELS) * (1.0 / D)
    inverse = reciprocal_root(mean + EPS)
    y = to_bf16(own * tl.broadcast_to(inverse, (BLOCK,)) * (1.0 + w if CENTRED else w))
    if LEAVES:
        tl.store(total + row.to(tl.int64) * D + start + j, own.to(tl.bfloat16), mask=inside)
    tl.store(out + row.to(tl.int64) * D + start + j, y, mask=inside)
    if FEED:
        store_operand(
            y.to(tl.float32), tl.program_id(2) * BLOCK, row, leaf, length, live, operand, factor,
            RPAD, PADDED, PLANES, UNIT, RUN, EXPONENT, GROUP, BLOCK,
        )  # fmt: skip


@triton.jit
def gated_heads(
    o: tl.tensor,  # f32 [R, V, DV]
    z: tl.tensor,  # f32 [PARTS, R, V * DV]
    weight: tl.tensor,  # [LAYERS, DV]
    layer: tl.tensor,  # int32 scalar, likewise used
    bounds: tl.tensor,  # int32 [leaves, 2], multiples of DV
    used: tl.tensor,
    out: tl.tensor,  # bf16 [R, V * DV]
    operand: tl.tensor,  # as in `store_operand`, likewise factor
    factor: tl.tensor,
    LAYERS: tl.constexpr,
    PARTS: tl.constexpr,
    R: tl.constexpr,
    V: tl.constexpr,
    DV: tl.constexpr,  # 2^LEVELS
    EPS: tl.constexpr,
    SWISH: tl.constexpr,
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
    LEVELS: tl.constexpr,
) -> None:
    """Grid (RPAD, leaves, blocks of a leaf)."""
    HEADS: tl.constexpr = BLOCK // DV
    row = tl.program_id(0)
    leaf = tl.program_id(1)
    start, length = edges(bounds, leaf, LENGTH)
    live = row < tl.load(used)
    place = tl.minimum(tl.maximum(tl.load(layer), 0), LAYERS - 1)
    j = tl.program_id(2) * BLOCK + tl.arange(0, HEADS)[:, None] * DV + tl.arange(0, DV)[None, :]
    inside = (j < length) & (row < R)
    at = row.to(tl.int64) * (V * DV) + start + j
    w = tl.load(weight + place * DV + tl.arange(0, DV)).to(tl.float32)[None, :]
    gate = to_bf16(added(z, at, inside, PARTS, R * V * DV)).to(tl.float32)
    h = to_bf16(tl.load(o + at, mask=inside, other=0.0)).to(tl.float32)
    mean = tree_rows(h * h, HEADS, DV, LEVELS) * (1.0 / DV)
    inverse = reciprocal_root(mean + EPS)
    y = to_bf16(h * tl.broadcast_to(inverse[:, None], (HEADS, DV))).to(tl.float32)
    y = to_bf16(y * tl.broadcast_to(w, (HEADS, DV))).to(tl.float32)
    y = to_bf16(y * (silu(gate) if SWISH else sigmoid(gate)))
    tl.store(out + at, y, mask=inside)
    if FEED:
        store_operand(
            tl.reshape(y.to(tl.float32), (BLOCK,)), tl.program_id(2) * BLOCK, row, leaf, length, live, operand, factor,
            RPAD, PADDED, PLANES, UNIT, RUN, EXPONENT, GROUP, BLOCK,
        )  # fmt: skip
