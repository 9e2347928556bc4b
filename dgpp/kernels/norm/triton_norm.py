"""RMSNorm as Triton kernels, with the operand of the matrices that read the rows. The bits of `reference`."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.clamp import clamped
from dgpp.kernels.gpu.gates import sigmoid, silu
from dgpp.kernels.gpu.parts import added, edges
from dgpp.kernels.gpu.rounding import reciprocal_root, to_bf16
from dgpp.kernels.gpu.tree import dealt_sum, tree_rows
from dgpp.kernels.linear.triton_prepare import store_operand
from dgpp.kernels.recurrence.triton_keep import keep_row


@triton.jit
def read(
    x: tl.tensor,  # bf16 [R, D]
    leaves: tl.tensor,  # [4, R, D]
    at: tl.tensor,
    inside: tl.tensor,
    LEAVES: tl.constexpr,
    STRIDE: tl.constexpr,  # R * D
) -> tl.tuple:
    """Rows at places of [R, D], and what lies there in the leaves; without leaves the rows again."""
    h = tl.load(x + at, mask=inside, other=0.0)
    a, b, c, d = h, h, h, h
    if LEAVES:
        a = tl.load(leaves + at, mask=inside, other=0.0)
        b = tl.load(leaves + STRIDE + at, mask=inside, other=0.0)
        c = tl.load(leaves + 2 * STRIDE + at, mask=inside, other=0.0)
        d = tl.load(leaves + 3 * STRIDE + at, mask=inside, other=0.0)
    return h, a, b, c, d


@triton.jit
def stream(
    found: tl.tuple,  # as `read` gives them
    LEAVES: tl.constexpr,
) -> tl.tensor:
    """float32: the rows, or their sum with the fold of the leaves, rounded to bfloat16."""
    x, a, b, c, d = found
    h = x.to(tl.float32)
    if LEAVES:
        first = stored(a) + stored(b)
        second = stored(c) + stored(d)
        h = to_bf16(h + to_bf16(first + second).to(tl.float32)).to(tl.float32)
    return h


@triton.jit
def stored(value: tl.tensor) -> tl.tensor:
    """float32: numbers rounded to bfloat16, if they are not yet."""
    if value.dtype != tl.bfloat16:
        value = to_bf16(value)
    return value.to(tl.float32)


@triton.jit
def squares(
    x: tl.tensor,  # bf16 [D]
    leaves: tl.tensor,  # [4, R, D]: those of the row
    at: tl.tensor,  # int32 [CHUNK / SPAN, SPAN]: 0, 1, ...
    LEAVES: tl.constexpr,
    STRIDE: tl.constexpr,
    D: tl.constexpr,  # at most 8 CHUNK
    CHUNK: tl.constexpr,
) -> tl.tensor:
    """float32, as `at`: the squares of a row, its halves added until CHUNK are left, as a halving tree does."""
    # Everything is asked for before anything is added.
    none = read(x, leaves, at, at < D, LEAVES, STRIDE)
    one = chunk(x, leaves, at, 1, LEAVES, STRIDE, D, CHUNK)
    two = chunk(x, leaves, at, 2, LEAVES, STRIDE, D, CHUNK)
    three = chunk(x, leaves, at, 3, LEAVES, STRIDE, D, CHUNK)
    four = chunk(x, leaves, at, 4, LEAVES, STRIDE, D, CHUNK)
    five = chunk(x, leaves, at, 5, LEAVES, STRIDE, D, CHUNK)
    six = chunk(x, leaves, at, 6, LEAVES, STRIDE, D, CHUNK)
    seven = chunk(x, leaves, at, 7, LEAVES, STRIDE, D, CHUNK)
    even = halves(none, four, 4, LEAVES, D, CHUNK)
    if D > 2 * CHUNK:
        even += halves(two, six, 6, LEAVES, D, CHUNK)
    if D > CHUNK:
        odd = halves(one, five, 5, LEAVES, D, CHUNK)
        if D > 3 * CHUNK:
            odd += halves(three, seven, 7, LEAVES, D, CHUNK)
        even += odd
    return even


@triton.jit
def chunk(
    x: tl.tensor,
    leaves: tl.tensor,
    at: tl.tensor,
    NUMBER: tl.constexpr,
    LEAVES: tl.constexpr,
    STRIDE: tl.constexpr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
) -> tl.tuple:
    """`read` of a chunk of a row, 0 beyond its end; of the first where this one is beyond."""
    FROM: tl.constexpr = NUMBER * CHUNK if NUMBER * CHUNK < D else 0
    return read(x, leaves, at + FROM, at + FROM < D, LEAVES, STRIDE)


@triton.jit
def halves(
    near: tl.tuple,
    far: tl.tuple,
    NUMBER: tl.constexpr,  # of the far one
    LEAVES: tl.constexpr,
    D: tl.constexpr,
    CHUNK: tl.constexpr,
) -> tl.tensor:
    """float32: the squares of a chunk, and those of the one that lies half a tree away, if the row reaches it."""
    h = stream(near, LEAVES)
    total = h * h
    if D > NUMBER * CHUNK:
        h = stream(far, LEAVES)
        total += h * h
    return total


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
    CHUNK: tl.constexpr,  # 2^LEVELS, as in `squares`
    SPAN: tl.constexpr,  # a power of two, at most CHUNK
    LEVELS: tl.constexpr,
    WARPS: tl.constexpr,
    ASM: tl.constexpr,
) -> None:
    """Grid (R, leaves, blocks of a leaf): each sums the whole row and writes its block. Rows from `used` on are not
    written."""
    row = tl.program_id(0)
    leaf = tl.program_id(1)
    live = row < tl.load(used)
    if live:
        start, length = edges(bounds, leaf, LENGTH)
        place = clamped(tl.load(layer), LAYERS)
        x += row.to(tl.int64) * D
        leaves += row.to(tl.int64) * D
        j = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
        inside = j < length
        own = stream(read(x, leaves, start + j, inside, LEAVES, R * D), LEAVES)
        w = tl.load(weight + place * D + start + j, mask=inside, other=0.0).to(tl.float32)
        # The first halves are added where they lie: what is left spans the threads of the program.
        k = tl.arange(0, CHUNK // SPAN)[:, None] * SPAN + tl.arange(0, SPAN)[None, :]
        square_sums = squares(x, leaves, k, LEAVES, R * D, D, CHUNK)
        mean = dealt_sum(tl.reshape(square_sums, (CHUNK,)), CHUNK, LEVELS, WARPS, ASM) * (1.0 / D)
        inverse = reciprocal_root(mean + EPS)  # a scalar, whose layout binds nothing
        y = to_bf16(own * inverse * (1.0 + w if CENTRED else w))
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
    fresh_k: tl.tensor,  # this and the next eight as in `keep_row`, if KEEP
    fresh_v: tl.tensor,
    fresh_g: tl.tensor,
    fresh_beta: tl.tensor,
    state_layer: tl.tensor,
    position: tl.tensor,
    slot: tl.tensor,
    commits: tl.tensor,
    last: tl.tensor,
    ring_k: tl.tensor,  # the memory of the last three outputs
    ring_v: tl.tensor,
    ring_g: tl.tensor,
    out: tl.tensor,  # bf16 [R, V * DV]
    operand: tl.tensor,  # as in `store_operand`, likewise factor
    factor: tl.tensor,
    new_k: tl.tensor,
    new_v: tl.tensor,
    new_g: tl.tensor,
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
    KEEP: tl.constexpr,  # whether the inputs of the rows of o are kept, and what `keep_row` is told of them
    L: tl.constexpr,
    S: tl.constexpr,
    W: tl.constexpr,
    K: tl.constexpr,
    DK: tl.constexpr,
    G: tl.constexpr,
    KPAD: tl.constexpr,
    VPAD: tl.constexpr,
    GPAD: tl.constexpr,
) -> None:
    """Grid (R, leaves, blocks of a leaf). Rows from `used` on are not written."""
    HEADS: tl.constexpr = BLOCK // DV
    row = tl.program_id(0)
    leaf = tl.program_id(1)
    live = row < tl.load(used)
    if live:
        if KEEP and (leaf == 0) & (tl.program_id(2) == 0):
            keep_row(
                row, fresh_k, fresh_v, fresh_g, fresh_beta, state_layer, position, slot, commits, last, used,
                new_k, new_v, new_g, L, S, W, K, V, DK, DV, G, KPAD, VPAD, GPAD,
            )  # fmt: skip
        start, length = edges(bounds, leaf, LENGTH)
        place = clamped(tl.load(layer), LAYERS)
        j = tl.program_id(2) * BLOCK + tl.arange(0, HEADS)[:, None] * DV + tl.arange(0, DV)[None, :]
        inside = j < length
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
                tl.reshape(y.to(tl.float32), (BLOCK,)), tl.program_id(2) * BLOCK, row, leaf, length, live, operand,
                factor, RPAD, PADDED, PLANES, UNIT, RUN, EXPONENT, GROUP, BLOCK,
            )  # fmt: skip
