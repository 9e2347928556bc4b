"""Rows times a Mixed346 weight: int8 levels against int8 activations on the integer matrix units.

A group of 128 weights is 8 words of 4 levels for each thread of a quad; its codes are contiguous there. Pieces of three
words (3 and 6 bits) do not fill aligned accesses, so they come from memory to registers, a step ahead (`pieces_at`).
`quantise` turns and rounds each row once and writes its codes in the order in which the instruction takes levels
(`place_of`).

Order, for one output: the sum of a group is an integer, exact in any order and on any architecture; as float32 it joins
the total by one fused multiply-add with fl32(scale of the weight * scale of the row), groups in ascending order. So the
bits are the same on every architecture.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import triton
import triton.language as tl

from dgpp.formats import Weight, hadamard, mixed346
from dgpp.kernels.gpu.clamp import clamped
from dgpp.kernels.gpu.launch import ASSEMBLY, Out, architecture, launch
from dgpp.kernels.gpu.rounding import to_bf16
from dgpp.kernels.linear.arguments import check_weight
from dgpp.kernels.linear.parts import shares
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.linear.triton_decode import LOOKUP, octet
from dgpp.kernels.linear.triton_hadamard import butterflies
from dgpp.kernels.linear.triton_recipe import Recipe
from dgpp.kernels.linear.triton_tiles import tile_for

GROUP = mixed346.GROUP
PARTS = 2  # of a sum over all of K
_GROUP = tl.constexpr(GROUP)
_SCALE_32 = tl.constexpr(float(hadamard.SCALE_32))
_LEAST_SCALE = tl.constexpr(float(mixed346.LEAST_SCALE))
_WHOLE = tl.constexpr(12582912.0)  # 1.5 * 2^23: adding and subtracting it rounds to an integer, ties to even

PLANES = {3: 8, 4: 2, 6: 4}
"""Words of 4 levels from each piece of a row that is decoded at a time: 3, 1 and 3 words of codes."""

_ABOVE = {bits: int(levels[0]) + 128 if bits == 4 else 0 for bits, levels in mixed346.TABLES.items()} | {6: -32}
"""Levels less this are what the decoders give."""


def _words(table: np.ndarray) -> list[int]:
    return table.astype(np.uint8).view("<u4").tolist()


def _spread(register: str, stages: int) -> str:
    """PTX: the low 24 bits of a register as fields of 12, 6 or 3 bits in 16, 8 or 4."""
    masks = (
        ("0x00000FFF", "0x0FFF0000", 4),
        ("0x003F003F", "0x3F003F00", 2),
        ("0x07070707", "0x70707070", 1),
    )
    return "".join(
        f"shl.b32 moved, {register}, {shift};\nand.b32 moved, moved, {high};\n"
        f"lop3.b32 {register}, {register}, {low}, moved, 0xEA;\n"
        for low, high, shift in masks[:stages]
    )


def _three() -> str:
    """PTX: three words of 3-bit codes to eight of levels."""
    first, second = _words(mixed346.TABLES[3].astype(np.int8))
    text = "{\n.reg .b32 codes, moved;\n"
    cuts = ("mov.b32 codes, $8", "shf.r.clamp.b32 codes, $8, $9, 24", "shf.r.clamp.b32 codes, $9, $10, 16")
    for i, cut in enumerate((*cuts, "shr.u32 codes, $10, 8")):
        text += f"{cut};\n{_spread('codes', 3)}"
        text += f"prmt.b32 ${2 * i}, {first}, {second}, codes;\nshr.u32 codes, codes, 16;\n"
        text += f"prmt.b32 ${2 * i + 1}, {first}, {second}, codes;\n"
    return text + "}"


def _six() -> str:
    """PTX: three words of 6-bit codes to four of codes in bytes."""
    text = "{\n.reg .b32 codes, moved;\n"
    cuts = ("mov.b32 codes, $4", "shf.r.clamp.b32 codes, $4, $5, 24", "shf.r.clamp.b32 codes, $5, $6, 16")
    for i, cut in enumerate((*cuts, "shr.u32 codes, $6, 8")):
        text += f"{cut};\n{_spread('codes', 2)}mov.b32 ${i}, codes;\n"
    return text + "}"


_THREE = tl.constexpr(_three())
_SIX = tl.constexpr(_six())
_FOUR = tl.constexpr(
    "{\n.reg .b32 codes;\nmov.b32 codes, $2;\n"
    + LOOKUP
    + """
lop3.b32 $0, a, 0x80808080, lower, 0xAE;
lop3.b32 $1, codes, 0x80808080, upper, 0xAE;
}
"""
)
_TABLES = tl.constexpr(
    {bits: tuple(int(level) - _ABOVE[bits] for level in levels) for bits, levels in mixed346.TABLES.items()}
)


@triton.jit
def word(w0: tl.tensor, w1: tl.tensor, w2: tl.tensor, which: tl.constexpr, BITS: tl.constexpr) -> tl.tensor:
    """int32: four levels less `_ABOVE`, a byte each, the plain form of the decoders."""
    found = tl.zeros(w0.shape, tl.int32)
    for i in tl.static_range(4):
        code: tl.constexpr = 2 * i + which if BITS == 4 else 4 * which + i
        start: tl.constexpr = code * BITS
        if start < 32:
            index = ((w0.to(tl.int64) & 0xFFFFFFFF) | (w1.to(tl.int64) << 32)) >> start
        else:
            index = ((w1.to(tl.int64) & 0xFFFFFFFF) | (w2.to(tl.int64) << 32)) >> (start - 32)
        index = index & ((1 << BITS) - 1)
        for j in tl.static_range(1 << BITS):
            found |= tl.where(index == j, (_TABLES[BITS][j] & 0xFF) << (8 * i), 0)
    return found


@triton.jit
def operand(
    w0: tl.tensor,  # int32 [BN, PIECES], or as `pieces_at`: the first words of all pieces of a group,
    w1: tl.tensor,  # the second and the third ones; with 4 bits the same again
    w2: tl.tensor,
    BITS: tl.constexpr,
    PLANES: tl.constexpr,
    BN: tl.constexpr,
    ASM: tl.constexpr,
) -> tl.tensor:
    """int8 [BN, 128]: a group's levels less `_ABOVE`, in the order of the instruction."""
    if BITS == 4:
        if ASM:
            p0, p1 = tl.inline_asm_elementwise(_FOUR, "=r,=r,r", [w0], dtype=(tl.int32, tl.int32), is_pure=True, pack=1)
        else:
            p0 = word(w0, w1, w2, 0, BITS)
            p1 = word(w0, w1, w2, 1, BITS)
        planes = tl.join(p0, p1)
    elif BITS == 6:
        if ASM:
            p0, p1, p2, p3 = tl.inline_asm_elementwise(
                _SIX,
                "=r,=r,=r,=r,r,r,r",
                [w0, w1, w2],
                dtype=(tl.int32, tl.int32, tl.int32, tl.int32),
                is_pure=True,
                pack=1,
            )
        else:
            p0 = word(w0, w1, w2, 0, BITS)
            p1 = word(w0, w1, w2, 1, BITS)
            p2 = word(w0, w1, w2, 2, BITS)
            p3 = word(w0, w1, w2, 3, BITS)
        planes = tl.join(tl.join(p0, p2), tl.join(p1, p3))
    else:
        if ASM:
            p0, p1, p2, p3, p4, p5, p6, p7 = tl.inline_asm_elementwise(
                _THREE,
                "=r,=r,=r,=r,=r,=r,=r,=r,r,r,r",
                [w0, w1, w2],
                dtype=(tl.int32, tl.int32, tl.int32, tl.int32, tl.int32, tl.int32, tl.int32, tl.int32),
                is_pure=True,
                pack=1,
            )
        else:
            p0 = word(w0, w1, w2, 0, BITS)
            p1 = word(w0, w1, w2, 1, BITS)
            p2 = word(w0, w1, w2, 2, BITS)
            p3 = word(w0, w1, w2, 3, BITS)
            p4 = word(w0, w1, w2, 4, BITS)
            p5 = word(w0, w1, w2, 5, BITS)
            p6 = word(w0, w1, w2, 6, BITS)
            p7 = word(w0, w1, w2, 7, BITS)
        planes = octet(p0, p1, p2, p3, p4, p5, p6, p7)
    if BITS == 4:
        planes = tl.permute(tl.reshape(planes, (BN, 4, 8 // PLANES, PLANES)), (0, 2, 3, 1))
    else:
        planes = tl.reshape(planes, (4, 8, BN // 16, 2, 8 // PLANES, PLANES))
        planes = tl.permute(planes, (2, 3, 1, 4, 5, 0))
    even = tl.join(planes.to(tl.int8), (planes >> 16).to(tl.int8))
    odd = tl.join((planes >> 8).to(tl.int8), (planes >> 24).to(tl.int8))
    return tl.reshape(tl.join(even, odd), (BN, _GROUP))


@triton.jit
def place_of(column: tl.tensor, BITS: tl.constexpr, PLANES: tl.constexpr) -> tl.tensor:
    """The place of a group's column in `operand`."""
    inside = column % (4 * PLANES)
    piece = column // (4 * PLANES)
    if BITS == 4:
        which = inside % 2
        i = inside // 2
    else:
        which = inside // 4
        i = inside % 4
    each: tl.constexpr = 8 // PLANES
    return ((piece % each * PLANES + which) * 4 + piece // each) * 4 + i


@triton.jit
def quantise(
    x: tl.tensor,  # bf16 [R, K]
    used: tl.tensor,  # int32 scalar
    codes: tl.tensor,  # int8 [RPAD, K]
    scales: tl.tensor,  # f32 [K / 128, RPAD]
    sums: tl.tensor,  # int32 [K / 128, RPAD]: of each group's codes, times ABOVE
    R: tl.constexpr,
    K: tl.constexpr,
    RPAD: tl.constexpr,
    BITS: tl.constexpr,
    PLANES: tl.constexpr,
    ABOVE: tl.constexpr,
) -> None:
    """Grid (RPAD, K / 128). Rows from `used` on are zeros."""
    row = tl.program_id(0)
    group = tl.program_id(1)
    live = row < tl.minimum(tl.load(used), R)
    k = tl.arange(0, _GROUP)
    at = row.to(tl.int64) * K + group * _GROUP
    turned = butterflies(tl.load(x + at + k, mask=live, other=0.0).to(tl.float32), _GROUP, 5)
    turned = to_bf16(turned * _SCALE_32).to(tl.float32)
    # As integers, so that a NaN is the largest.
    most = tl.max(turned.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=0).to(tl.float32, bitcast=True)
    scale = tl.div_rn(most, 127.0)
    scale = tl.where(scale < _LEAST_SCALE, _LEAST_SCALE, scale)
    exact = tl.div_rn(turned, tl.broadcast_to(scale, (_GROUP,)))
    whole = (exact + _WHOLE) - _WHOLE
    code = tl.where(whole == whole, tl.minimum(tl.maximum(whole, -128.0), 127.0), 0.0).to(tl.int32)
    tl.store(scales + group * RPAD + row, scale)
    tl.store(sums + group * RPAD + row, tl.sum(code, axis=0) * ABOVE)
    tl.store(codes + at + place_of(k, BITS, PLANES), code.to(tl.int8))


@triton.jit
def product(
    codes: tl.tensor,  # this and the next two as `quantise` leaves them
    scales: tl.tensor,
    sums: tl.tensor,
    w: tl.tensor,  # int32 [layers, N, K * BITS / 32]
    scale: tl.tensor,  # bf16 [layers, N, K / 128]
    bounds: tl.tensor,  # int32 [leaves, 2]: groups
    layer: tl.tensor,  # int32 scalar
    used: tl.tensor,  # int32 scalar
    out: tl.tensor,  # f32 [leaves, R, N]
    LAYERS: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    R: tl.constexpr,
    RPAD: tl.constexpr,
    BITS: tl.constexpr,
    PLANES: tl.constexpr,
    ABOVE: tl.constexpr,
    COUNT: tl.constexpr,  # groups in a step, 1 or 2: it divides every leaf's
    BN: tl.constexpr,
    BR: tl.constexpr,
    BK: tl.constexpr,
    ASM: tl.constexpr,
) -> None:
    """Grid (row tiles, column tiles, leaves), as `triton_matrices.product`."""
    PIECES: tl.constexpr = _GROUP // (4 * PLANES)  # of a group
    GROUP_WORDS: tl.constexpr = _GROUP * BITS // 32
    GROUPS: tl.constexpr = K // _GROUP
    leaf = tl.program_id(2)
    first = tl.program_id(1) * BN
    place = clamped(tl.load(layer), LAYERS).to(tl.int64)
    live = tl.load(used)
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    n = tl.minimum(first + tl.arange(0, BN), N - 1)
    begin = tl.load(bounds + 2 * leaf)
    end = tl.load(bounds + 2 * leaf + 1)
    steps = tl.where(tl.program_id(0) * BR < live, (end - begin) // COUNT, 0)

    w_at = w + place * N * (GROUPS * GROUP_WORDS) + begin * GROUP_WORDS
    if BITS == 4:
        w_at += n[:, None] * GROUP_WORDS * GROUPS + tl.arange(0, PIECES)[None, :]
    else:
        row, piece = pieces_at(BN, PLANES)
        w_at += tl.minimum(first + row, N - 1) * (GROUPS * GROUP_WORDS) + 3 * piece
    x_at = codes + r[None, :].to(tl.int64) * K + begin * _GROUP + tl.arange(0, _GROUP)[:, None]
    s_at = scale + (place * N + n) * GROUPS
    acc = tl.zeros((BN, BR), tl.float32)
    f0, y0, z0 = factors(s_at, scales + r, sums + r, begin, end, RPAD)
    f1, y1, z1 = f0, y0, z0
    if COUNT == 2:
        f1, y1, z1 = factors(s_at, scales + r, sums + r, begin + 1, end, RPAD)
    if BITS != 4:
        a0, a1, a2 = words_at(w_at, steps > 0)
        b0, b1, b2 = a0, a1, a2
        if COUNT == 2:
            b0, b1, b2 = words_at(w_at + GROUP_WORDS, steps > 0)
    for i in range(steps):
        group = i * COUNT
        w_i = w_at + group * GROUP_WORDS
        x_i = x_at + group * _GROUP
        # What the next step's sums are multiplied by is under way during this one.
        following = begin + group + COUNT
        g0, u0, v0 = factors(s_at, scales + r, sums + r, following, end, RPAD)
        g1, u1, v1 = g0, u0, v0
        if COUNT == 2:
            g1, u1, v1 = factors(s_at, scales + r, sums + r, following + 1, end, RPAD)
        if BITS == 4:
            w0 = tl.load(w_i)
            acc = joined(acc, w0, w0, w0, x_i, f0, y0, z0, BITS, PLANES, BN, BR, ASM)
            if COUNT == 2:
                w0 = tl.load(w_i + GROUP_WORDS)
                acc = joined(acc, w0, w0, w0, x_i + _GROUP, f1, y1, z1, BITS, PLANES, BN, BR, ASM)
        else:
            more = i + 1 < steps
            c0, c1, c2 = words_at(w_i + COUNT * GROUP_WORDS, more)
            d0, d1, d2 = c0, c1, c2
            if COUNT == 2:
                d0, d1, d2 = words_at(w_i + (COUNT + 1) * GROUP_WORDS, more)
            acc = joined(acc, a0, a1, a2, x_i, f0, y0, z0, BITS, PLANES, BN, BR, ASM)
            if COUNT == 2:
                acc = joined(acc, b0, b1, b2, x_i + _GROUP, f1, y1, z1, BITS, PLANES, BN, BR, ASM)
            a0, a1, a2 = c0, c1, c2
            b0, b1, b2 = d0, d1, d2
        f0, y0, z0 = g0, u0, v0
        f1, y1, z1 = g1, u1, v1

    y = tl.where(r[None, :] < live, acc, 0.0)
    column = first + tl.arange(0, BN)[:, None]
    out_at = out + (leaf.to(tl.int64) * R + r[None, :]) * N + column
    tl.store(out_at, y, mask=(column < N) & (r[None, :] < R))


@triton.jit
def pieces_at(BN: tl.constexpr, PLANES: tl.constexpr) -> tl.tensor:
    """(row, piece) of the words of a group, int32 [lane of a quad, row of 8, warp, half of 16 rows, a lane's piece]:
    the places in which the matrix instruction takes its left operand, so that words come from memory to registers."""
    quad = tl.arange(0, 4)[:, None, None, None, None]
    row = tl.arange(0, 8)[None, :, None, None, None]
    warp = tl.arange(0, BN // 16)[None, None, :, None, None]
    half = tl.arange(0, 2)[None, None, None, :, None]
    own = tl.arange(0, 8 // PLANES)[None, None, None, None, :]
    zero = quad * 0 + row * 0 + warp * 0 + half * 0 + own * 0
    return zero + warp * 16 + half * 8 + row, zero + quad * (8 // PLANES) + own


@triton.jit
def words_at(w: tl.tensor, some: tl.tensor) -> tl.tensor:
    """The three words of every piece from pointers to the first ones; 0 without `some`."""
    return tl.load(w, mask=some, other=0), tl.load(w + 1, mask=some, other=0), tl.load(w + 2, mask=some, other=0)


@triton.jit
def factors(
    scale: tl.tensor, scales: tl.tensor, sums: tl.tensor, group: tl.tensor, end: tl.tensor, RPAD: tl.constexpr
) -> tl.tensor:
    """(f32 [BN], f32 [BR], int32 [BR]) of a group: its scales, the rows' scales and sums; 0 past the end."""
    inside = group < end
    return (
        tl.load(scale + group, mask=inside, other=0.0).to(tl.float32),
        tl.load(scales + group * RPAD, mask=inside, other=0.0),
        tl.load(sums + group * RPAD, mask=inside, other=0),
    )


@triton.jit
def joined(
    acc: tl.tensor,
    w0: tl.tensor,  # as in `operand`
    w1: tl.tensor,
    w2: tl.tensor,
    x: tl.tensor,  # pointers [128, BR]
    scale: tl.tensor,  # f32 [BN]
    of_row: tl.tensor,  # f32 [BR]
    above: tl.tensor,  # int32 [BR]
    BITS: tl.constexpr,
    PLANES: tl.constexpr,
    BN: tl.constexpr,
    BR: tl.constexpr,
    ASM: tl.constexpr,
) -> tl.tensor:
    """acc + a group's sum times its factor."""
    total = tl.dot(operand(w0, w1, w2, BITS, PLANES, BN, ASM), tl.load(x), out_dtype=tl.int32)
    if BITS != 3:
        total += above[None, :]
    return tl.fma(total.to(tl.float32), scale[:, None] * of_row[None, :], acc)


def mixed346_leaves(x: jax.Array, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges | None) -> jax.Array:
    """float32 [leaves, R, N] over `ranges`, or over the `shares` of all of K; arguments are checked."""
    (rows, k), n = x.shape, w.shape[0]
    indices = w.arrays["indices"]
    layers = indices.shape[0] if check_weight("linear", w) else 1
    bits = indices.shape[-1] * 32 // k
    tile = tile_for(architecture(), Recipe(f"mixed346_{bits}"), rows)
    cuts = [(a // GROUP, b // GROUP) for a, b in ranges or ()] or shares(k // GROUP, PARTS)
    count = math.gcd(tile.bytes * 8 // bits // GROUP, *(b - a for a, b in cuts))
    rpad = -(-rows // tile.rows) * tile.rows
    constants = {
        "R": rows,
        "K": k,
        "RPAD": rpad,
        "BITS": bits,
        "PLANES": PLANES[bits],
        "ABOVE": _ABOVE[bits],
    }
    groups = (k // GROUP, rpad)
    operand = launch(
        quantise,
        (x, used),
        (Out((rpad, k), jnp.int8), Out(groups, jnp.float32), Out(groups, jnp.int32)),
        (rpad, k // GROUP),
        constants,
        warps=1,
        stages=1,
    )
    constants |= {
        "LAYERS": layers,
        "N": n,
        "COUNT": count,
        "BN": tile.columns,
        "BR": tile.rows,
        "BK": count * GROUP,
        "ASM": ASSEMBLY,
    }
    grid = (rpad // tile.rows, -(-n // tile.columns), len(cuts))
    bounds = jnp.asarray(np.array(cuts, np.int32))
    arguments = (*operand, indices, w.arrays["scale"], bounds, layer, used)
    outs = (Out((len(cuts), rows, n), jnp.float32),)
    return launch(product, arguments, outs, grid, constants, warps=tile.warps, stages=tile.stages)[0]
