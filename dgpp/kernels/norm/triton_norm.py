"""RMSNorm as Triton kernels, with the operand of the matrices that read the rows. The bits of `reference`."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.gates import sigmoid, silu
from dgpp.kernels.gpu.parts import added
from dgpp.kernels.gpu.rounding import reciprocal_root, to_bf16
from dgpp.kernels.gpu.tree import tree_rows
from dgpp.kernels.linear.triton_prepare import store_operand


@triton.jit
def normed_rows(
    x: tl.tensor,  # bf16 [R, D]
    weight: tl.tensor,  # [LAYERS, D]
    layer: tl.tensor,  # int32 scalar, likewise used
    bounds: tl.tensor,  # int32 [leaves, 2]
    used: tl.tensor,
    out: tl.tensor,  # bf16 [R, D]
    operand: tl.tensor,  # as in `store_operand`, likewise factor
    factor: tl.tensor,
    LAYERS: tl.constexpr,
    R: tl.constexpr,
    D: tl.constexpr,
    EPS: tl.constexpr,
    CENTRED: tl.constexpr,
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
    start = tl.load(bounds + 2 * leaf)
    length = tl.load(bounds + 2 * leaf + 1) - start
    place = tl.minimum(tl.maximum(tl.load(layer), 0), LAYERS - 1)
    live = row < tl.load(used)
    x += row.to(tl.int64) * D
    # Halves are added between rows of this tile first, which lie in one warp.
    k = tl.arange(0, WIDTH // SPAN)[:, None] * SPAN + tl.arange(0, SPAN)[None, :]
    h = tl.load(x + k, mask=(k < D) & live & (row < R), other=0.0).to(tl.float32)
    j = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    inside = (j < length) & (row < R)
    own = tl.load(x + start + j, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(weight + place * D + start + j, mask=inside, other=0.0).to(tl.float32)
    mean = tree_rows(tl.reshape(h * h, (1, WIDTH)), 1, WIDTH, LEVELS) * (1.0 / D)
    inverse = reciprocal_root(mean + EPS)
    y = to_bf16(own * tl.broadcast_to(inverse, (BLOCK,)) * (1.0 + w if CENTRED else w))
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
    start = tl.load(bounds + 2 * leaf)
    length = tl.load(bounds + 2 * leaf + 1) - start
    live = row < tl.load(used)
    place = tl.minimum(tl.maximum(tl.load(layer), 0), LAYERS - 1)
    j = tl.program_id(2) * BLOCK + tl.arange(0, HEADS)[:, None] * DV + tl.arange(0, DV)[None, :]
    inside = (j < length) & (row < R)
    counted = inside & live
    at = row.to(tl.int64) * (V * DV) + start + j
    w = tl.load(weight + place * DV + tl.arange(0, DV)).to(tl.float32)[None, :]
    gate = to_bf16(added(z, at, counted, PARTS, R * V * DV)).to(tl.float32)
    h = to_bf16(tl.load(o + at, mask=counted, other=0.0)).to(tl.float32)
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
