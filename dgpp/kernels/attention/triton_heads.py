"""The inputs of attention as a Triton kernel: heads apart, norms, rotation, the gate's logits. The bits of `inputs`."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.clamp import clamped
from dgpp.kernels.gpu.parts import added
from dgpp.kernels.gpu.rounding import reciprocal_root, to_bf16
from dgpp.kernels.gpu.tree import tree_rows


@triton.jit
def heads_of_row(
    q: tl.tensor,  # f32 [PARTS, R, 2 * H * DIM]
    k: tl.tensor,  # f32 [PARTS, R, K * DIM], likewise v
    v: tl.tensor,
    q_norm: tl.tensor,  # [LAYERS, DIM], likewise k_norm
    k_norm: tl.tensor,
    layer: tl.tensor,  # int32 scalar: the place in the norms
    cos: tl.tensor,  # f32 [R, HALF], likewise sin
    sin: tl.tensor,
    out_q: tl.tensor,  # bf16 [R, H, DIM], likewise out_gate
    out_k: tl.tensor,  # bf16 [R, K, DIM], likewise out_v
    out_v: tl.tensor,
    out_gate: tl.tensor,
    LAYERS: tl.constexpr,
    PARTS: tl.constexpr,
    R: tl.constexpr,
    H: tl.constexpr,
    K: tl.constexpr,
    DIM: tl.constexpr,  # 2^LEVELS
    HALF: tl.constexpr,  # pairs that are turned
    EPS: tl.constexpr,
    HEADS: tl.constexpr,
    LEVELS: tl.constexpr,
) -> None:
    """Grid (R, programs of HEADS heads: the queries', then the keys')."""
    row = tl.program_id(0)
    group = tl.program_id(1)
    queries: tl.constexpr = (H + HEADS - 1) // HEADS
    d = tl.arange(0, DIM)[None, :]
    place = clamped(tl.load(layer), LAYERS)
    if group < queries:
        head = group * HEADS + tl.arange(0, HEADS)[:, None]
        at = row.to(tl.int64) * (2 * H * DIM) + head * (2 * DIM) + d
        there = (head < H) & (d < DIM)
        gate = added(q, at + DIM, there, PARTS, R * 2 * H * DIM)
        tl.store(out_gate + (row * H + head) * DIM + d, to_bf16(gate), mask=there)
        y = turned(
            q, q_norm + place * DIM, at, there, cos + row * HALF, sin + row * HALF, PARTS, R * 2 * H * DIM, DIM, HALF,
            EPS, HEADS, LEVELS,
        )  # fmt: skip
        tl.store(out_q + (row * H + head) * DIM + d, y, mask=there)
    else:
        head = (group - queries) * HEADS + tl.arange(0, HEADS)[:, None]
        at = row.to(tl.int64) * (K * DIM) + head * DIM + d
        there = (head < K) & (d < DIM)
        value = added(v, at, there, PARTS, R * K * DIM)
        tl.store(out_v + (row * K + head) * DIM + d, to_bf16(value), mask=there)
        y = turned(
            k, k_norm + place * DIM, at, there, cos + row * HALF, sin + row * HALF, PARTS, R * K * DIM, DIM, HALF,
            EPS, HEADS, LEVELS,
        )  # fmt: skip
        tl.store(out_k + (row * K + head) * DIM + d, y, mask=there)


@triton.jit
def turned(
    parts: tl.tensor,  # f32 [PARTS, R, ...]
    norm: tl.tensor,  # [DIM]
    at: tl.tensor,  # [HEADS, DIM] places of the heads
    there: tl.tensor,
    cos: tl.tensor,  # f32 [HALF], likewise sin
    sin: tl.tensor,
    PARTS: tl.constexpr,
    STRIDE: tl.constexpr,
    DIM: tl.constexpr,
    HALF: tl.constexpr,
    EPS: tl.constexpr,
    HEADS: tl.constexpr,
    LEVELS: tl.constexpr,
) -> tl.tensor:
    """bf16 [HEADS, DIM]: the heads with their norm, turned by the row's angles."""
    d = tl.arange(0, DIM)[None, :]
    away = tl.where(d < HALF, HALF, tl.where(d < 2 * HALF, -HALF, 0))  # from an element to the other of its pair
    h = to_bf16(added(parts, at, there, PARTS, STRIDE)).to(tl.float32)
    other = to_bf16(added(parts, at + away, there, PARTS, STRIDE)).to(tl.float32)
    mean = tree_rows(h * h, HEADS, DIM, LEVELS) * (1.0 / DIM)
    inverse = reciprocal_root(mean + EPS)
    inverse = tl.broadcast_to(inverse[:, None], (HEADS, DIM))
    x = to_bf16(h * inverse * (1.0 + tl.load(norm + d).to(tl.float32))).to(tl.float32)
    y = to_bf16(other * inverse * (1.0 + tl.load(norm + d + away).to(tl.float32))).to(tl.float32)
    pair = tl.where(d < HALF, d, d - HALF)
    c = to_bf16(tl.load(cos + pair, mask=d < 2 * HALF, other=0.0)).to(tl.float32)
    s = to_bf16(tl.load(sin + pair, mask=d < 2 * HALF, other=0.0)).to(tl.float32)
    y = tl.where(d < HALF, y * -1.0, y)  # Triton takes -y as 0 - y
    moved = to_bf16(x * c).to(tl.float32) + to_bf16(y * s).to(tl.float32)
    return to_bf16(tl.where(d < 2 * HALF, moved, x))
