"""The router's choice as a Triton kernel, a program a row: softmax, the largest, and their renormalised weights."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.exp import exp_f32
from dgpp.kernels.gpu.rounding import to_bf16
from dgpp.kernels.gpu.tree import tree_sum

_TINY = tl.constexpr(2.0**-126)


@triton.jit
def choose(
    parts: tl.tensor,  # f32 [PARTS, R, E]
    experts: tl.tensor,  # int32 [R, CHOSEN]
    weights: tl.tensor,  # bf16 [R, CHOSEN]
    PARTS: tl.constexpr,
    R: tl.constexpr,
    E: tl.constexpr,
    EPAD: tl.constexpr,  # 2^ELEVELS, at least E and 2
    ELEVELS: tl.constexpr,
    CHOSEN: tl.constexpr,
    CPAD: tl.constexpr,  # 2^CLEVELS, likewise of CHOSEN
    CLEVELS: tl.constexpr,
) -> None:
    """Grid (R,)."""
    row = tl.program_id(0)
    e = tl.arange(0, EPAD)
    j = tl.arange(0, CPAD)
    at = parts + row.to(tl.int64) * E + e
    h = tl.load(at, mask=e < E, other=float("-inf"))
    for part in tl.static_range(1, PARTS):
        h += tl.load(at + part * R * E, mask=e < E, other=0.0)
    h = to_bf16(h).to(tl.float32)
    odds = exp_f32(h - tl.max(h, axis=0))
    p = tl.div_rn(odds, tl.broadcast_to(tree_sum(odds, EPAD, ELEVELS), (EPAD,)))
    p = tl.where(p < _TINY, 0.0, p)  # as on a processor that has no subnormal numbers
    key = tl.where(p == p, p, float("inf"))  # a row that is NaN is so as a whole; its choice is the lowest ids
    key = tl.where(e < E, key, -1.0)
    ids = tl.full((CPAD,), EPAD, tl.int32)
    held = tl.zeros((CPAD,), tl.float32)
    for i in range(CHOSEN):
        best = tl.min(tl.where(key == tl.max(key, axis=0), e, EPAD), axis=0)
        ids = tl.where(j == i, best, ids)
        held = tl.where(j == i, tl.sum(tl.where(e == best, p, 0.0), axis=0), held)
        key = tl.where(e == best, -1.0, key)
    rank = tl.sum((ids[None, :] < ids[:, None]).to(tl.int32), axis=1)
    at = row.to(tl.int64) * CHOSEN + rank
    tl.store(experts + at, ids, mask=j < CHOSEN)
    there = (rank[None, :] == j[:, None]) & (j < CHOSEN)[None, :]
    total = tree_sum(tl.sum(tl.where(there, held[None, :], 0.0), axis=1), CPAD, CLEVELS)
    weight = tl.div_rn(held, tl.broadcast_to(total, (CPAD,)))
    tl.store(weights + at, to_bf16(weight), mask=j < CHOSEN)
