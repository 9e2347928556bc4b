"""Rows times a BF12 weight on the matrix units: its bfloat16 values are put together in registers.

A step is a part of a super-block: STEP / 2 bytes of each of its three parts, which hold STEP / 4 neighbouring columns
of each of its 256. Activations stay bfloat16; `arrange` writes each row once in the order of the steps (`column`), with
zeros outside the leaf.

Order, for one output: the sum of each step starts from +0, the bytes of the first part before those of the second, and
joins the total in ascending order of the steps. Escapes count as zero there; their products are added behind, in
ascending order of the columns, each by a fused multiply-add. A raw row goes through one accumulator in ascending order
of K instead. A leaf takes the steps that it has columns of. Rows and tile sizes move no addition while the instruction
class stays the same, as in `triton_product`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import triton
import triton.language as tl

from dgpp.formats import Weight, bf12
from dgpp.kernels.gpu.clamp import clamped
from dgpp.kernels.gpu.launch import ASSEMBLY, Out, architecture, launch
from dgpp.kernels.linear.arguments import check_weight
from dgpp.kernels.linear.parts import shares
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.linear.triton_decode import octet
from dgpp.kernels.linear.triton_product import dot
from dgpp.kernels.linear.triton_recipe import Recipe
from dgpp.kernels.linear.triton_tiles import tile_for

STEP = 128  # weights in a step
PARTS = 4  # of a sum over all of K
PREPARE_WARPS = 8
_SUPER = tl.constexpr(bf12.SUPER)
_PART = tl.constexpr(bf12.SUPER // 8)  # words of each of the three parts of a super-block
RAW_STEP = 64
RAW_STAGES = 3

# From the words of two pieces of a row: sign and mantissa bytes of columns 0 to 3 and 4 to 7, codes, and e0 << 7. The
# bfloat16 values at each column, those of the two pieces together. `keep` is 0 for an escape. The exponent is moved to
# its place and added by one multiply-add, which keeps the unit for bits and bytes free.
_VALUES = tl.constexpr(
    """
{
.reg .b32 byte, code, keep, base;
.reg .b32 codes<4>, escape<2>;
mov.b32 escape0, 0x000F000F;
mov.b32 escape1, 0x00F000F0;
prmt.b32 base, $14, $15, 0x5410;
prmt.b32 codes0, $12, $13, 0x5410;
prmt.b32 codes2, $12, $13, 0x7632;
shr.u32 codes1, codes0, 8;
shr.u32 codes3, codes2, 8;
"""
    + "".join(
        f"""
prmt.b32 byte, ${8 + 2 * (j // 4)}, ${9 + 2 * (j // 4)}, {("0x4400", "0x5511", "0x6622", "0x7733")[j % 4]};
and.b32 code, codes{j // 2}, escape{j % 2};
set.ne.u32.f16x2 keep, code, escape{j % 2};
mad.lo.u32 code, code, {(1 << 7, 1 << 3)[j % 2]}, base;
lop3.b32 byte, byte, 0x807F807F, code, 0xEA;
and.b32 ${j}, byte, keep;
"""
        for j in range(8)
    )
    + "}"
)


@triton.jit
def value(low: tl.tensor, high: tl.tensor, codes: tl.tensor, base: tl.tensor, j: tl.constexpr) -> tl.tensor:
    """The bfloat16 at column j of pieces of a row: the plain form of `_VALUES`."""
    if j < 4:
        byte = low >> (8 * j)
    else:
        byte = high >> (8 * (j - 4))
    code = (codes >> (4 * j)) & 15
    bits = ((byte & 0x80) << 8) | (base + (code << 7)) | (byte & 0x7F)
    return tl.where(code == 15, 0, bits).to(tl.uint16).to(tl.bfloat16, bitcast=True)


@triton.jit
def values(
    low: tl.tensor,  # int32 [BN, PIECES]: sign and mantissa bytes of columns 0 to 3 of each piece,
    high: tl.tensor,  # and of 4 to 7
    codes: tl.tensor,  # int32 [BN, PIECES]
    base: tl.tensor,  # int32 [BN]: e0 << 7
    BN: tl.constexpr,
    PIECES: tl.constexpr,  # pairs of them follow each other in a row
    ASM: tl.constexpr,
) -> tl.tensor:
    """bfloat16 [BN, 8 PIECES] in the order of `place_of`."""
    base = tl.broadcast_to(base[:, None], (BN, PIECES))
    if ASM:
        v0, v1, v2, v3, v4, v5, v6, v7 = tl.inline_asm_elementwise(
            _VALUES,
            "=r,=r,=r,=r,=r,=r,=r,=r,r,r,r,r,r,r,r,r",
            [low, high, codes, base],
            dtype=(
                tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16,
            ),
            is_pure=True,
            pack=2,
        )  # fmt: skip
    else:
        v0 = value(low, high, codes, base, 0)
        v1 = value(low, high, codes, base, 1)
        v2 = value(low, high, codes, base, 2)
        v3 = value(low, high, codes, base, 3)
        v4 = value(low, high, codes, base, 4)
        v5 = value(low, high, codes, base, 5)
        v6 = value(low, high, codes, base, 6)
        v7 = value(low, high, codes, base, 7)
    tile = octet(v0, v1, v2, v3, v4, v5, v6, v7)
    # Pieces: those of a quad's lanes, one or two pairs of neighbours each.
    tile = tl.reshape(tile, (BN, 4, PIECES // 8, 2, 8))
    return tl.reshape(tl.permute(tile, (0, 4, 2, 1, 3)), (BN, 8 * PIECES))


@triton.jit
def arrange(
    x: tl.tensor,  # bf16 [R, K]
    bounds: tl.tensor,  # int32 [leaves, 4]: the steps and the columns of each leaf
    used: tl.tensor,  # int32 scalar
    out: tl.tensor,  # bf16 [leaves, RPAD, PADDED]
    K: tl.constexpr,
    RPAD: tl.constexpr,
    PADDED: tl.constexpr,
    BK: tl.constexpr,  # columns of a step
    BLOCK: tl.constexpr,  # a power of two, at least PADDED
) -> None:
    """Grid (RPAD, leaves). Rows from `used` on, and columns outside the leaf, are zeros."""
    row = tl.program_id(0)
    leaf = tl.program_id(1)
    step = tl.load(bounds + 4 * leaf)
    start = tl.load(bounds + 4 * leaf + 2)
    stop = tl.load(bounds + 4 * leaf + 3)
    stop = tl.where(row < tl.load(used), stop, start)
    o = tl.arange(0, BLOCK)
    k = column(step + o // BK, o % BK, BK)
    tile = tl.load(x + row.to(tl.int64) * K + k, mask=(k >= start) & (k < stop), other=0.0)
    tl.store(out + (leaf.to(tl.int64) * RPAD + row) * PADDED + o, tile, mask=o < PADDED)


@triton.jit
def column(step: tl.tensor, place: tl.tensor, BK: tl.constexpr) -> tl.tensor:
    """The column of the weight's row at a place of a step, in the order of the instruction."""
    PAIRS: tl.constexpr = BK // 128  # of neighbouring pieces in a lane
    STEPS: tl.constexpr = _SUPER // BK
    piece = place // 2 % 4 * PAIRS + place // 8 % PAIRS
    quarter = place // (BK // 2) * 2 + place % 2
    j = place % (BK // 2) // (8 * PAIRS)
    return step // STEPS * _SUPER + quarter * (_SUPER // 4) + step % STEPS * (BK // 4) + piece * 8 + j


@triton.jit
def half(
    total: tl.tensor,
    bytes: tl.tensor,  # int32 [BN, BK / 8]
    codes: tl.tensor,  # int32 [BN, BK / 16]
    base: tl.tensor,
    x: tl.tensor,  # pointers [BK / 2, BR]
    first: tl.constexpr,  # place in the step
    step: tl.tensor,
    start: tl.tensor,
    stop: tl.tensor,
    CUT: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    ASM: tl.constexpr,
) -> tl.tensor:
    """total + the columns of one half of a step times their activations."""
    low, high = tl.split(tl.reshape(bytes, (BN, BK // 16, 2)))
    w = values(low, high, codes, base, BN, BK // 16, ASM)
    if CUT:  # an infinity outside the leaf must not meet the zero there
        k = column(step, first + tl.arange(0, BK // 2), BK)[None, :]
        w = tl.where((k >= start) & (k < stop), w, 0.0)
    return dot(w, tl.load(x + first), total, ASM)


@triton.jit
def product(
    x: tl.tensor,  # bf16 [R, K]
    arranged: tl.tensor,  # bf16 [leaves, RPAD, PADDED]
    packed: tl.tensor,  # uint8 [layers, N, K * 3 / 2]
    rows: tl.tensor,  # uint32 [layers, 2 (N + 1)]
    escapes: tl.tensor,  # uint32 [layers, ESCAPES]
    bounds: tl.tensor,  # int32 [leaves, 4]
    layer: tl.tensor,  # int32 scalar
    used: tl.tensor,  # int32 scalar
    out: tl.tensor,  # f32 [leaves, R, N]
    LAYERS: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    R: tl.constexpr,
    RPAD: tl.constexpr,
    PADDED: tl.constexpr,
    ESCAPES: tl.constexpr,  # 0 when the weight has none
    CUT: tl.constexpr,  # whether a leaf begins or ends inside a step
    BN: tl.constexpr,
    BR: tl.constexpr,
    BK: tl.constexpr,
    ASM: tl.constexpr,
) -> None:
    """Grid (row tiles, column tiles, leaves), as `triton_matrices.product`."""
    leaf = tl.program_id(2)
    first = tl.program_id(1) * BN
    place = clamped(tl.load(layer), LAYERS).to(tl.int64)
    live = tl.load(used)
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    n = tl.minimum(first + tl.arange(0, BN), N - 1)
    step = tl.load(bounds + 4 * leaf)
    steps = tl.load(bounds + 4 * leaf + 1) - step
    start = tl.load(bounds + 4 * leaf + 2)
    stop = tl.load(bounds + 4 * leaf + 3)
    steps = tl.where(tl.program_id(0) * BR < live, steps, 0)
    word = tl.load(rows + place * (2 * N + 2) + 2 * n + 1)
    is_raw = (word >> 31) != 0
    base = tl.where(is_raw, 0, word >> 16).to(tl.int32)

    STEPS: tl.constexpr = _SUPER // BK
    o = tl.arange(0, BK // 8)
    w_at = packed.to(tl.pointer_type(tl.int32)) + (place * N + n[:, None]) * (K * 3 // 8) + o[None, :]
    x_at = arranged + (leaf.to(tl.int64) * RPAD + r[None, :]) * PADDED + tl.arange(0, BK // 2)[:, None]
    acc = tl.zeros((BN, BR), tl.float32)
    for i in range(steps):
        at = w_at + ((step + i) // STEPS * (3 * _PART) + (step + i) % STEPS * (BK // 8))
        low = tl.load(at)
        high = tl.load(at + _PART)
        # Codes: 8 neighbouring pieces of each half, in turn twice of either.
        codes = tl.permute(tl.reshape(tl.load(at + 2 * _PART), (BN, BK // 32, 2, 2)), (0, 1, 3, 2))
        c_low, c_high = tl.split(codes)
        c_low = tl.reshape(c_low, (BN, BK // 16))
        c_high = tl.reshape(c_high, (BN, BK // 16))
        x_i = x_at + i * BK
        total = tl.zeros((BN, BR), tl.float32)
        total = half(total, low, c_low, base, x_i, 0, step + i, start, stop, CUT, BN, BK, ASM)
        total = half(total, high, c_high, base, x_i, BK // 2, step + i, start, stop, CUT, BN, BK, ASM)
        acc = tl.fma(total, 1.0, acc)

    inside = r[None, :] < R
    x_at = x + tl.minimum(r, R - 1).to(tl.int64)[None, :] * K
    if ESCAPES:
        index = tl.load(rows + place * (2 * N + 2) + 2 * n).to(tl.int32)
        end = tl.load(rows + place * (2 * N + 2) + 2 * n + 2).to(tl.int32)
        for i in range(tl.max(end - index, axis=0)):
            escape = tl.load(escapes + place * ESCAPES + index + i, mask=index + i < end, other=0)
            k = (escape >> 16).to(tl.int32)
            weight = (escape << 16).to(tl.float32, bitcast=True)
            own = k // _SUPER * STEPS + k % (_SUPER // 4) // (BK // 4) - step
            here = (index + i < end) & (k >= start) & (k < stop) & (own >= 0) & (own < steps)
            factor = tl.load(x_at + k[:, None], mask=here[:, None] & inside, other=0.0).to(tl.float32)
            more = tl.fma(tl.broadcast_to(weight[:, None], (BN, BR)), factor, acc)
            acc = tl.where(here[:, None], more, acc)
    y = tl.where(r[None, :] < live, acc, 0.0)
    column_ = first + tl.arange(0, BN)[:, None]
    tl.store(out + (leaf.to(tl.int64) * R + r[None, :]) * N + column_, y, mask=(column_ < N) & inside)


@triton.jit
def raw_rows(
    x: tl.tensor,  # bf16 [R, K]
    rows: tl.tensor,  # uint32 [layers, 2 (N + 1)]
    raw: tl.tensor,  # bf16 [layers, RAWS, K]
    bounds: tl.tensor,  # int32 [leaves, 4]
    layer: tl.tensor,  # int32 scalar
    used: tl.tensor,  # int32 scalar
    others: tl.tensor,  # f32 [leaves, R, N]: what `product` leaves, in the same memory as `out`
    out: tl.tensor,
    LAYERS: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    R: tl.constexpr,
    RAWS: tl.constexpr,
    STEP: tl.constexpr,
    BN: tl.constexpr,
    BR: tl.constexpr,
    BK: tl.constexpr,
    ASM: tl.constexpr,
) -> None:
    """Grid as `product`: the outputs of raw rows. A part of a sum over all of K takes as many columns as its steps."""
    leaf = tl.program_id(2)
    place = clamped(tl.load(layer), LAYERS).to(tl.int64)
    live = tl.load(used)
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    word = tl.load(rows + place * (2 * N + 2) + 2 * n + 1, mask=n < N, other=0)
    here = (word >> 31) != 0
    if (tl.max(here.to(tl.int32), axis=0) == 0) | (tl.program_id(0) * BR >= live):
        return
    start = tl.maximum(tl.load(bounds + 4 * leaf) * STEP, tl.load(bounds + 4 * leaf + 2))
    stop = tl.minimum(tl.load(bounds + 4 * leaf + 1) * STEP, tl.load(bounds + 4 * leaf + 3))
    k = tl.arange(0, BK)
    w_at = raw + (place * RAWS + (word & 0x7FFFFFFF).to(tl.int64))[:, None] * K + k[None, :]
    x_at = x + tl.minimum(r, R - 1).to(tl.int64)[None, :] * K + k[:, None]
    acc = tl.zeros((BN, BR), tl.float32)
    for i in range(start, stop, BK):
        w = tl.load(w_at + i, mask=here[:, None] & (i + k < stop)[None, :], other=0.0)
        acc = dot(w, tl.load(x_at + i, mask=(i + k < stop)[:, None], other=0.0), acc, ASM)
    out_at = out + (leaf.to(tl.int64) * R + r[None, :]) * N + n[:, None]
    tl.store(out_at, acc, mask=here[:, None] & (r[None, :] < tl.minimum(live, R)))


def bf12_leaves(x: jax.Array, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges | None) -> jax.Array:
    """float32 [leaves, R, N] over `ranges`, or over the `shares` of all of K; arguments are checked."""
    (rows, k), n = x.shape, w.shape[0]
    tile = tile_for(architecture(), Recipe("bf12"), rows)
    packed, words, escapes, raw = (w.arrays[name] for name in ("packed", "rows", "escapes", "raw"))
    layers = packed.shape[0] if check_weight("linear", w) else 1
    span = bf12.SUPER // STEP
    if ranges is None:
        leaves = [(a, b, 0, k) for a, b in shares(k // STEP, PARTS)]
    else:
        leaves = [(a // bf12.SUPER * span, -(-b // bf12.SUPER) * span, a, b) for a, b in ranges]
    padded = max(leaf[1] - leaf[0] for leaf in leaves) * STEP
    rpad = -(-rows // tile.rows) * tile.rows
    bounds = jnp.asarray(np.array(leaves, np.int32))
    (arranged,) = launch(
        arrange,
        (x, bounds, used),
        (Out((len(leaves), rpad, padded), jnp.bfloat16),),
        (rpad, len(leaves)),
        {"K": k, "RPAD": rpad, "PADDED": padded, "BK": STEP, "BLOCK": 1 << (padded - 1).bit_length()},
        warps=PREPARE_WARPS,
        stages=1,
    )
    constants = {
        "LAYERS": layers,
        "N": n,
        "K": k,
        "R": rows,
        "RPAD": rpad,
        "PADDED": padded,
        "ESCAPES": escapes.shape[-1],
        "CUT": any(bound % bf12.SUPER for pair in ranges or () for bound in pair),
        "BN": tile.columns,
        "BR": tile.rows,
        "BK": STEP,
        "ASM": ASSEMBLY,
    }
    grid = (rpad // tile.rows, -(-n // tile.columns), len(leaves))
    listed = escapes if escapes.shape[-1] else words
    outs = (Out((len(leaves), rows, n), jnp.float32),)
    arguments = (x, arranged, packed, words, listed, bounds, layer, used)
    (out,) = launch(product, arguments, outs, grid, constants, warps=tile.warps, stages=tile.stages)
    if raw.shape[-2] == 0:
        return out
    constants = {name: constants[name] for name in ("LAYERS", "N", "K", "R", "BN", "BR", "ASM")}
    constants |= {"RAWS": raw.shape[-2], "STEP": STEP, "BK": RAW_STEP}
    given = (x, words, raw, bounds, layer, used, out)
    outs = (Out(out.shape, out.dtype, alias=len(given) - 1),)
    return launch(raw_rows, given, outs, grid, constants, warps=tile.warps, stages=RAW_STAGES)[0]
