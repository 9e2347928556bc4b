"""The inputs of rows that do not commit put into their rings, as Triton functions: by a kernel of their own, or by one
that runs when the rings' old rows have been read."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.clamp import clamped


@triton.jit
def keep_row(
    row: tl.tensor,
    k: tl.tensor,  # f32 [R, K, DK]
    v: tl.tensor,  # [R, V, DV]
    g: tl.tensor,  # f32 [R, V, G]
    beta: tl.tensor,  # f32 [R, V]
    layer: tl.tensor,  # int32 scalar, likewise used
    position: tl.tensor,  # int32 [R], likewise slot, commits, last
    slot: tl.tensor,
    commits: tl.tensor,
    last: tl.tensor,
    used: tl.tensor,
    new_k: tl.tensor,  # the rings, as in `triton_step.segments`
    new_v: tl.tensor,
    new_g: tl.tensor,
    L: tl.constexpr,
    S: tl.constexpr,
    W: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    DK: tl.constexpr,
    DV: tl.constexpr,
    G: tl.constexpr,
    KPAD: tl.constexpr,  # powers of two, at least K * DK, V * DV and V * (G + 1)
    VPAD: tl.constexpr,
    GPAD: tl.constexpr,
) -> None:
    """One row, if it is kept: one that does not commit, of a segment the last W."""
    mine = tl.load(slot + row)
    keep = (row < tl.load(used)) & (tl.load(commits + row) == 0) & (tl.load(last + row) - row < W)
    if keep & (mine >= 0) & (mine < S):
        place = clamped(tl.load(layer), L).to(tl.int64)
        at = (place * S + mine) * W + tl.maximum(tl.load(position + row), 0) % W
        j = tl.arange(0, KPAD)
        tl.store(new_k + at * (K * DK) + j, tl.load(k + row * (K * DK) + j, mask=j < K * DK), mask=j < K * DK)
        j = tl.arange(0, VPAD)
        tl.store(new_v + at * (V * DV) + j, tl.load(v + row * (V * DV) + j, mask=j < V * DV), mask=j < V * DV)
        j = tl.arange(0, GPAD)
        head, e = j // (G + 1), j % (G + 1)
        decay = tl.load(g + (row * V + head) * G + e, mask=(head < V) & (e < G), other=0.0)
        value = tl.where(e < G, decay, tl.load(beta + row * V + head, mask=(head < V) & (e == G), other=0.0))
        tl.store(new_g + at * (V * (G + 1)) + j, value, mask=head < V)


@triton.jit
def keep_inputs(
    k: tl.tensor,  # this and the next nine as in `keep_row`
    v: tl.tensor,
    g: tl.tensor,
    beta: tl.tensor,
    layer: tl.tensor,
    position: tl.tensor,
    slot: tl.tensor,
    commits: tl.tensor,
    last: tl.tensor,
    used: tl.tensor,
    ring_k: tl.tensor,  # the outputs are the same memory
    ring_v: tl.tensor,
    ring_g: tl.tensor,
    read: tl.tensor,  # what was computed from the rings' old rows
    new_k: tl.tensor,
    new_v: tl.tensor,
    new_g: tl.tensor,
    L: tl.constexpr,
    S: tl.constexpr,
    W: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    DK: tl.constexpr,
    DV: tl.constexpr,
    G: tl.constexpr,
    KPAD: tl.constexpr,
    VPAD: tl.constexpr,
    GPAD: tl.constexpr,
) -> None:
    """Grid (R,)."""
    keep_row(
        tl.program_id(0), k, v, g, beta, layer, position, slot, commits, last, used, new_k, new_v, new_g,
        L, S, W, K, V, DK, DV, G, KPAD, VPAD, GPAD,
    )  # fmt: skip
