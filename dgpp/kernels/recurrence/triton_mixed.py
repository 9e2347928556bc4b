"""The inputs of the gated delta rule as a Triton kernel, of the bits of `inputs`."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.clamp import clamped
from dgpp.kernels.gpu.exp import exp_f32
from dgpp.kernels.gpu.gates import sigmoid, silu, softplus
from dgpp.kernels.gpu.parts import added
from dgpp.kernels.gpu.rounding import reciprocal_root, to_bf16
from dgpp.kernels.gpu.tree import tree_rows

L2_EPS = tl.constexpr(1e-6)


@triton.jit
def summed(
    parts: tl.tensor,  # f32 [PARTS, R, N]
    at: tl.tensor,
    inside: tl.tensor,
    PARTS: tl.constexpr,
    STRIDE: tl.constexpr,
) -> tl.tensor:
    """float32: the parts at places of [R, N], added and rounded to bfloat16."""
    return to_bf16(added(parts, at, inside, PARTS, STRIDE)).to(tl.float32)


@triton.jit
def mixed_rows(
    qkv: tl.tensor,  # f32 [PARTS, R, C], C = (2 K + V) * DIM
    a: tl.tensor,  # f32 [GATE_PARTS, R, V], likewise b
    b: tl.tensor,
    conv: tl.tensor,  # [LAYERS, C, 1, WIDTH]
    a_log: tl.tensor,  # [LAYERS, V], likewise dt_bias
    dt_bias: tl.tensor,
    ring: tl.tensor,  # bf16 [STATES, S, DEPTH, C]
    layer: tl.tensor,  # int32 scalar: the place in the weights
    state_layer: tl.tensor,  # int32 scalar: the place in the ring
    position: tl.tensor,  # int32 [R], likewise slot, first
    slot: tl.tensor,
    first: tl.tensor,
    used: tl.tensor,  # int32 scalar
    q: tl.tensor,  # f32 [R, K, DIM], likewise k
    k: tl.tensor,
    v: tl.tensor,  # bf16 [R, V, DIM]
    g: tl.tensor,  # f32 [R, V], likewise beta
    beta: tl.tensor,
    here: tl.tensor,  # bf16 [R, C], likewise mixed
    mixed: tl.tensor,
    new: tl.tensor,  # the memory of `ring`, if KEEP
    LAYERS: tl.constexpr,
    STATES: tl.constexpr,
    S: tl.constexpr,
    DEPTH: tl.constexpr,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
    GATE_PARTS: tl.constexpr,
    R: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    VPAD: tl.constexpr,  # a power of two, at least V
    DIM: tl.constexpr,  # 2^LEVELS
    ROOT: tl.constexpr,  # DIM^-1/2
    HEADS: tl.constexpr,
    LEVELS: tl.constexpr,
    KEEP: tl.constexpr,  # whether the rows go into the ring: no segment may be so long that a row takes the
    # place of one that another row reads
) -> None:
    """Grid (R, programs of HEADS heads, and one more for the gates). Rows from `used` on are not written."""
    C: tl.constexpr = (2 * K + V) * DIM
    row = tl.program_id(0)
    group = tl.program_id(1)
    live = row < tl.load(used)
    place = clamped(tl.load(layer), LAYERS)
    if live & (group * HEADS < 2 * K + V):
        state = clamped(tl.load(state_layer), STATES)
        mine = clamped(tl.load(slot + row), S)
        at = tl.load(position + row)
        begin = tl.load(first + row)
        head = group * HEADS + tl.arange(0, HEADS)
        channel = head[:, None] * DIM + tl.arange(0, DIM)[None, :]
        there = channel < C
        total = tl.zeros((HEADS, DIM), tl.float32)
        for tap in tl.static_range(WIDTH):
            near = row - (WIDTH - 1 - tap) >= begin
            x = summed(qkv, (row - (WIDTH - 1 - tap)) * C + channel, there & near, PARTS, R * C)
            if tap != WIDTH - 1:
                past = tl.maximum(at - (WIDTH - 1 - tap), 0) % DEPTH
                far = ring + ((state.to(tl.int64) * S + mine) * DEPTH + past) * C + channel
                kept = there & (near == 0) & (at >= WIDTH - 1 - tap)
                x = tl.where(near, x, tl.load(far, mask=kept, other=0.0).to(tl.float32))
            else:
                tl.store(here + row * C + channel, to_bf16(x), mask=there)
                if KEEP:
                    now = ((state.to(tl.int64) * S + mine) * DEPTH + tl.maximum(at, 0) % DEPTH) * C + channel
                    tl.store(new + now, to_bf16(x), mask=there & (tl.load(slot + row) == mine))
            w = tl.load(conv + (place * C + channel) * WIDTH + tap, mask=there, other=0.0).to(tl.float32)
            total = total + x * w
        y = to_bf16(silu(to_bf16(total).to(tl.float32)))
        tl.store(mixed + row * C + channel, y, mask=there)
        h = y.to(tl.float32)
        square = tree_rows(h * h, HEADS, DIM, LEVELS) + L2_EPS
        inverse = reciprocal_root(square)
        n = h * tl.broadcast_to(inverse[:, None], (HEADS, DIM))
        wide = head[:, None] + tl.zeros((HEADS, DIM), tl.int32)
        tl.store(q + row * (K * DIM) + channel, n * ROOT, mask=there & (wide < K))
        tl.store(k + row * (K * DIM) + channel - K * DIM, n, mask=there & (wide >= K) & (wide < 2 * K))
        tl.store(v + row * (V * DIM) + channel - 2 * K * DIM, y, mask=there & (wide >= 2 * K))
    elif live:
        i = tl.arange(0, VPAD)
        real = i < V
        opened = sigmoid(summed(b, row * V + i, real, GATE_PARTS, R * V))
        rate = exp_f32(tl.load(a_log + place * V + i, mask=real, other=0.0).to(tl.float32))
        step = summed(a, row * V + i, real, GATE_PARTS, R * V)
        step = step + tl.load(dt_bias + place * V + i, mask=real, other=0.0).to(tl.float32)
        tl.store(beta + row * V + i, opened, mask=real)
        tl.store(g + row * V + i, rate * softplus(step) * -1.0, mask=real)
