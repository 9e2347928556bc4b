"""The gated delta rule as a Triton kernel: a program holds a strip of one head's state in registers over a segment.

Order: that of `dgpp.kernels.recurrence`. A program is one warp whose lanes are the 16 lanes of the sums over dk (and
two groups of columns), so a lane adds in ascending order and the lanes meet by halving. The next row's inputs are
loaded while a row is computed; nothing else is in flight, for the chain of rows is what takes the time.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.clamp import clamped
from dgpp.kernels.gpu.exp import exp_f32


@triton.jit
def step(
    s: tl.tensor,  # [BV, DK]
    k: tl.tensor,  # [DK]
    v: tl.tensor,  # [BV]
    g: tl.tensor,  # [DK], or a scalar
    beta: tl.tensor,  # scalar
    KEYED: tl.constexpr,
) -> tl.tensor:
    """The state after one more row."""
    decay = exp_f32(g)
    s = s * decay[None, :] if KEYED else s * decay
    u = (v - tl.sum(s * k[None, :], axis=1)) * beta
    return s + u[:, None] * k[None, :]


@triton.jit
def segments(
    q: tl.tensor,  # f32 [R, K, DK], likewise k
    k: tl.tensor,
    v: tl.tensor,  # [R, V, DV]
    g: tl.tensor,  # f32 [R, V, G]
    beta: tl.tensor,  # f32 [R, V]
    committed: tl.tensor,  # f32 [L, S, V, DK, DV]; `new` is the same memory
    ring_k: tl.tensor,  # f32 [L, S, W, K, DK]
    ring_v: tl.tensor,  # [L, S, W, V, DV]
    ring_g: tl.tensor,  # f32 [L, S, W, V, G + 1]
    layer: tl.tensor,  # int32 scalar, likewise used
    position: tl.tensor,  # int32 [R], likewise slot, last
    slot: tl.tensor,
    commits: tl.tensor,  # int32 [R], 0 or 1
    last: tl.tensor,
    replay: tl.tensor,  # int32 [S]
    used: tl.tensor,
    key_index: tl.tensor,  # int32 [V]
    o: tl.tensor,  # f32 [R, V, DV]
    new: tl.tensor,
    R: tl.constexpr,
    RPAD: tl.constexpr,  # a power of two, at least R
    L: tl.constexpr,
    S: tl.constexpr,
    W: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    DK: tl.constexpr,
    DV: tl.constexpr,
    G: tl.constexpr,  # 1, or DK: decays of a row and head
    BV: tl.constexpr,
) -> None:
    """Grid (DV / BV, V, R or S, whatever is less): the segment that begins with a row, or that of a slot, if there is
    one. Padding rows are not written."""
    head = tl.program_id(1)
    mine = tl.program_id(2)
    place = clamped(tl.load(layer), L)
    rows = tl.arange(0, RPAD)
    live_rows = tl.minimum(tl.load(used), R)
    committing = tl.load(commits + rows, mask=rows < R, other=0)
    key = tl.load(key_index + head)
    if R <= S:
        first = mine
        mine = tl.load(slot + first)
        before = tl.load(slot + first - 1, mask=first > 0, other=-1)
        first = tl.where((first < live_rows) & (mine != before) & (mine >= 0) & (mine < S), first, RPAD)
    else:
        slots = tl.load(slot + rows, mask=rows < live_rows, other=-1)
        first = tl.min(tl.where(slots == mine, rows, RPAD), axis=0)
    if first < RPAD:
        # What the first row needs is all under way before any of it is waited for, and the state, which takes longest,
        # is asked for last: what is asked for behind it would come behind it.
        begin = tl.load(position + first)
        stop = tl.load(last + first) + 1
        accepted = tl.load(replay + mine)
        i = tl.arange(0, DK)
        j = tl.program_id(0) * BV + tl.arange(0, BV)
        e = tl.arange(0, DK) if G > 1 else 0
        k_next = tl.load(k + (first * K + key) * DK + i)
        q_next = tl.load(q + (first * K + key) * DK + i)
        v_next = tl.load(v + (first * V + head) * DV + j)
        g_next = tl.load(g + (first * V + head) * G + e)
        beta_next = tl.load(beta + first * V + head)
        at = ((place * S + mine).to(tl.int64) * V + head) * (DK * DV) + i[None, :] * DV + j[:, None]
        s = tl.load(committed + at)
        border = first + tl.sum(tl.where((rows >= first) & (rows < stop), committing, 0), axis=0)
        s = tl.where(begin > 0, s, 0.0)

        if W:
            base = (place * S + mine).to(tl.int64) * W
            for p in range(begin - accepted, begin):
                row = base + p % W
                gates = ring_g + (row * V + head) * (G + 1)
                old = tl.load(ring_v + (row * V + head) * DV + j).to(tl.float32)
                old_k = tl.load(ring_k + (row * K + key) * DK + i)
                s = step(s, old_k, old, tl.load(gates + e), tl.load(gates + G), G > 1)

        if border == first:
            tl.store(new + at, s)
        for r in range(first, stop):
            k_now, q_now, v_now, g_now, beta_now = k_next, q_next, v_next, g_next, beta_next
            ahead = tl.minimum(r + 1, R - 1)
            k_next = tl.load(k + (ahead * K + key) * DK + i)
            q_next = tl.load(q + (ahead * K + key) * DK + i)
            v_next = tl.load(v + (ahead * V + head) * DV + j)
            g_next = tl.load(g + (ahead * V + head) * G + e)
            beta_next = tl.load(beta + ahead * V + head)
            s = step(s, k_now, v_now.to(tl.float32), g_now, beta_now, G > 1)
            tl.store(o + (r * V + head) * DV + j, tl.sum(s * q_now[None, :], axis=1))
            if r + 1 == border:
                tl.store(new + at, s)
