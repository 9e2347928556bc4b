"""Rows times weights whose words become pairs of float16 by shifts and masks: int8 in bit planes, and GPTQ's layout.

A code u is the float16 of bits 0x6400 + u, which is 1024 + u; less 1024 + zero point, exactly. The words of a piece (16
codes of three planes, or the 8 or 4 of one word) give pairs of codes half a piece (planes: 4) apart. `arrange` puts
activations in the same order, as float16 shifted by a power of two per row and group: with the group's largest in
[2^15, 2^16), every element down to 2^-32 of it is exact.

Order, for one output: the sum of each group (128, or those under one scale if fewer) starts from +0, in the order of
`arrange`, and joins the total in ascending order by one fused multiply-add with the group's scale. Rows and tile sizes
move no addition while the instruction class stays the same, as in `triton_product`.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import triton
import triton.language as tl

from dgpp.formats import Weight, format_named
from dgpp.formats.gptq import GPTQ
from dgpp.formats.int8_planes import GROUP
from dgpp.kernels.gpu.clamp import clamped
from dgpp.kernels.gpu.launch import ASSEMBLY, Out, architecture, launch
from dgpp.kernels.linear.arguments import check_weight
from dgpp.kernels.linear.parts import shares
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.linear.triton_decode import octet, unpaired
from dgpp.kernels.linear.triton_product import dot, scale_at
from dgpp.kernels.linear.triton_recipe import Recipe
from dgpp.kernels.linear.triton_tiles import tile_for

LANES = 4  # of a quad
PARTS = 2  # of a sum over all of K

KINDS = ("planes", "4 bits K-first", "8 bits K-first")
PLANES = tl.constexpr(0)
FOUR = tl.constexpr(1)
EIGHT = tl.constexpr(2)


def _pair(shift: int, register: str, mask: str, first: bool = False) -> str:
    """PTX: the masked bits of a register, moved right or left, joined with `pair`; 0x6400 at the first time."""
    move = f"shr.u32 moved, {register}, {shift};\n" if shift >= 0 else f"shl.b32 moved, {register}, {-shift};\n"
    if first:
        return f"{move}lop3.b32 pair, moved, {mask}, magic, 0xEA;\n"
    return f"{move}lop3.b32 pair, moved, {mask}, pair, 0xEA;\n"


def _assembly(kind: str) -> str:
    """PTX: the pairs of a piece; the last operand is twice the float16 bits of 1024 + zero point."""
    text = "{\n.reg .b32 moved, pair, magic;\nmov.b32 magic, 0x64006400;\n"
    if kind == "planes":
        for o in range(8):
            upper, j = divmod(o, 4)
            text += _pair(4 * j - 4, f"${8 + upper}", "0x00F000F0", first=True)
            text += _pair(8 * upper + 2 * j - 2, "$10", "0x000C000C")
            text += _pair(8 * upper + 2 * j, "$11", "0x00030003")
            text += f"sub.rn.f16x2 ${o}, pair, $12;\n"
        return text + "}"
    count, mask = (4, "0x000F000F") if kind == "4 bits K-first" else (2, "0x00FF00FF")
    for o in range(count):
        text += _pair(o * 16 // count, f"${count}", mask, first=True)
        text += f"sub.rn.f16x2 ${o}, pair, ${count + 1};\n"
    return text + "}"


_OF_PLANES, _OF_FOUR, _OF_EIGHT = (tl.constexpr(_assembly(kind)) for kind in KINDS)


@triton.jit
def masked(word: tl.tensor, at: tl.constexpr, BITS: tl.constexpr) -> tl.tensor:
    """The BITS of int32 words from bit `at` on."""
    return (word >> at) & ((1 << BITS) - 1)


@triton.jit
def paired(low: tl.tensor, high: tl.tensor, zero: tl.tensor) -> tl.tensor:
    """int32: the float16 bits of two codes less the zero point."""
    low = (low - zero).to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    high = (high - zero).to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    return low | (high << 16)


@triton.jit
def of_planes(
    w0: tl.tensor, w1: tl.tensor, w2: tl.tensor, w3: tl.tensor, zero: tl.tensor, o: tl.constexpr
) -> tl.tensor:
    """One pair of a piece of planes: the plain form of its assembly."""
    j: tl.constexpr = o % 4
    if o < 4:
        nibbles = w0
    else:
        nibbles = w1
    at: tl.constexpr = o // 4 * 8 + 2 * j
    low = (masked(nibbles, 4 * j, 4) << 4) | (masked(w2, at, 2) << 2) | masked(w3, at, 2)
    high = (masked(nibbles, 4 * j + 16, 4) << 4) | (masked(w2, at + 16, 2) << 2) | masked(w3, at + 16, 2)
    return paired(low, high, zero)


@triton.jit
def operand(
    w0: tl.tensor,  # int32 [BN, PIECES]; with planes: the nibbles of codes 0 to 7 of every piece,
    w1: tl.tensor,  # those of 8 to 15,
    w2: tl.tensor,  # bits 3 and 2,
    w3: tl.tensor,  # bits 1 and 0; else w0 again
    zero: tl.tensor,  # int32 [BN, 1]
    KIND: tl.constexpr,
    PIECES: tl.constexpr,
    BN: tl.constexpr,
    ASM: tl.constexpr,
) -> tl.tensor:
    """float16 [BN, group]: codes less zero points, in the order of `arrange`."""
    PAIRS: tl.constexpr = 8 if KIND == PLANES else 4 if KIND == FOUR else 2
    if ASM:
        zero = (zero + 0x6400) * 0x10001
    zero = tl.broadcast_to(zero, (BN, PIECES))
    if KIND == PLANES:
        if ASM:
            p0, p1, p2, p3, p4, p5, p6, p7 = tl.inline_asm_elementwise(
                _OF_PLANES,
                "=r,=r,=r,=r,=r,=r,=r,=r,r,r,r,r,r",
                [w0, w1, w2, w3, zero],
                dtype=(tl.int32, tl.int32, tl.int32, tl.int32, tl.int32, tl.int32, tl.int32, tl.int32),
                is_pure=True,
                pack=1,
            )
        else:
            p0 = of_planes(w0, w1, w2, w3, zero, 0)
            p1 = of_planes(w0, w1, w2, w3, zero, 1)
            p2 = of_planes(w0, w1, w2, w3, zero, 2)
            p3 = of_planes(w0, w1, w2, w3, zero, 3)
            p4 = of_planes(w0, w1, w2, w3, zero, 4)
            p5 = of_planes(w0, w1, w2, w3, zero, 5)
            p6 = of_planes(w0, w1, w2, w3, zero, 6)
            p7 = of_planes(w0, w1, w2, w3, zero, 7)
        pairs = octet(p0, p1, p2, p3, p4, p5, p6, p7)
    elif KIND == FOUR:
        if ASM:
            p0, p1, p2, p3 = tl.inline_asm_elementwise(
                _OF_FOUR,
                "=r,=r,=r,=r,r,r",
                [w0, zero],
                dtype=(tl.int32, tl.int32, tl.int32, tl.int32),
                is_pure=True,
                pack=1,
            )
        else:
            p0 = paired(masked(w0, 0, 4), masked(w0, 16, 4), zero)
            p1 = paired(masked(w0, 4, 4), masked(w0, 20, 4), zero)
            p2 = paired(masked(w0, 8, 4), masked(w0, 24, 4), zero)
            p3 = paired(masked(w0, 12, 4), masked(w0, 28, 4), zero)
        pairs = tl.join(tl.join(p0, p2), tl.join(p1, p3))
    else:
        if ASM:
            p0, p1 = tl.inline_asm_elementwise(
                _OF_EIGHT, "=r,=r,r,r", [w0, zero], dtype=(tl.int32, tl.int32), is_pure=True, pack=1
            )
        else:
            p0 = paired(masked(w0, 0, 8), masked(w0, 16, 8), zero)
            p1 = paired(masked(w0, 8, 8), masked(w0, 24, 8), zero)
        pairs = tl.join(p0, p1)
    pairs = tl.permute(tl.reshape(pairs, (BN, 4, PIECES // 4, PAIRS)), (0, 2, 3, 1))
    return unpaired(pairs, BN, 2 * PAIRS * PIECES)


@triton.jit
def arrange(
    x: tl.tensor,  # bf16 [R, K]
    used: tl.tensor,  # int32 scalar
    out: tl.tensor,  # f16 [RPAD, K]
    factor: tl.tensor,  # f32 [K / GROUP, RPAD]: undoes the shift
    R: tl.constexpr,
    K: tl.constexpr,
    RPAD: tl.constexpr,
    OUTER: tl.constexpr,  # the columns of a piece: OUTER times 2 halves of pairs times INNER
    INNER: tl.constexpr,
    EACH: tl.constexpr,  # pieces of a group in one lane of a quad
    GROUP: tl.constexpr,
) -> None:
    """Grid (RPAD, K / GROUP). A group's order: a lane's piece, pair, lane, half. Rows from `used` on are zeros."""
    row = tl.program_id(0)
    group = tl.program_id(1)
    live = row < tl.minimum(tl.load(used), R)
    k = tl.arange(0, GROUP)
    at = row.to(tl.int64) * K + group * GROUP
    value = tl.load(x + at + k, mask=live, other=0.0).to(tl.float32)
    exponent = tl.max(value.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=0) >> 23
    # Both powers of two are normal numbers; zeros or tiny numbers keep what fits.
    shift = tl.minimum(142 - exponent, 126)
    tl.store(factor + group * RPAD + row, ((127 - shift) << 23).to(tl.float32, bitcast=True))
    inner = k % INNER
    half = k // INNER % 2
    outer = k // (2 * INNER) % OUTER
    piece = k // (2 * INNER * OUTER)
    to = (((piece % EACH * OUTER + outer) * INNER + inner) * 4 + piece // EACH) * 2 + half
    lifted = value * ((shift + 127) << 23).to(tl.float32, bitcast=True)
    tl.store(out + at + to, lifted.to(tl.float16))


@triton.jit
def zero_of(zeros: tl.tensor, shifts: tl.tensor, n: tl.tensor, KIND: tl.constexpr, ZERO: tl.constexpr) -> tl.tensor:
    """int32, as n: the zero points of one group from its row of words, where ZERO is what they are too small by; else
    the constant -ZERO.

    Where in a word they lie is looked up: numbers that are computed, and not loaded, would keep the compiler from
    loading the codes in the order of the matrix instruction.
    """
    if ZERO < 0:
        found = tl.zeros(n.shape, tl.int32) - ZERO
    else:
        BITS: tl.constexpr = 4 if KIND == FOUR else 8
        word = tl.load(zeros + n * BITS // 32)
        found = ((word >> tl.load(shifts + n % (32 // BITS))) & ((1 << BITS) - 1)) + ZERO
    return found


@triton.jit
def product(
    x: tl.tensor,  # f16 [RPAD, K] and
    factor: tl.tensor,  # f32 [K / BK, RPAD], as `arrange` leaves them
    w: tl.tensor,  # planes uint8 [layers, N, K], or int32 [layers, K * bits / 32, N]
    scale: tl.tensor,  # f16 [layers, N, K / WIDTH] with planes, else [layers, K / WIDTH, N]
    zeros: tl.tensor,  # int32 [layers, K / WIDTH, N * bits / 32] where ZERO is not negative
    shifts: tl.tensor,  # int32 [32 / bits], see `zero_of`
    bounds: tl.tensor,  # int32 [leaves, 2]: groups
    layer: tl.tensor,  # int32 scalar
    used: tl.tensor,  # int32 scalar
    out: tl.tensor,  # f32 [leaves, R, N]
    LAYERS: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    R: tl.constexpr,
    RPAD: tl.constexpr,
    KIND: tl.constexpr,
    ZERO: tl.constexpr,  # as in `zero_of`
    WIDTH: tl.constexpr,  # columns under one scale, a multiple of BK
    BN: tl.constexpr,
    BR: tl.constexpr,
    BK: tl.constexpr,  # the group
    STAGES: tl.constexpr,  # of the loads under way
    ASM: tl.constexpr,
) -> None:
    """Grid (row tiles, column tiles, leaves), as `triton_matrices.product`."""
    PIECES: tl.constexpr = BK // 16 if KIND == PLANES else BK // 8 if KIND == FOUR else BK // 4
    PER: tl.constexpr = WIDTH // BK
    leaf = tl.program_id(2)
    first = tl.program_id(1) * BN
    place = clamped(tl.load(layer), LAYERS).to(tl.int64)
    live = tl.load(used)
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    n = first + tl.arange(0, BN)
    if N % BN:  # known while compiling; else the compiler would not see that words lie side by side
        n = tl.minimum(n, N - 1)
    begin = tl.load(bounds + 2 * leaf)
    end = tl.load(bounds + 2 * leaf + 1)
    steps = tl.where(tl.program_id(0) * BR < live, end - begin, 0)

    Z_STEP: tl.constexpr = 0 if KIND == PLANES else N // 8 if KIND == FOUR else N // 4
    p = tl.arange(0, PIECES)[None, :]
    if KIND == PLANES:
        row = w.to(tl.pointer_type(tl.int32)) + (place * N + n[:, None]) * (K // 4)
        o = tl.arange(0, 2 * PIECES)[None, :]
        w_at = row + begin * (2 * PIECES) + o
        pair_at = row + K // 8 + begin * PIECES + p
        s_at = scale + (place * N + n) * (K // WIDTH)
        z_at = zeros
    else:
        w_at = w + (place * (K // BK) + begin) * (PIECES * N) + p * N + n[:, None]
        s_at = scale + place * (K // WIDTH * N)
        z_at = zeros + place * (K // WIDTH * Z_STEP)
    x_at = x + r[None, :].to(tl.int64) * K + begin * BK + tl.arange(0, BK)[:, None]
    acc = tl.zeros((BN, BR), tl.float32)
    for i in tl.range(steps, num_stages=STAGES):
        at = (begin + i) // PER
        if KIND == PLANES:
            w0, w1 = tl.split(tl.reshape(tl.load(w_at + i * (2 * PIECES)), (BN, PIECES, 2)))
            w2 = tl.load(pair_at + i * PIECES)
            w3 = tl.load(pair_at + K // 16 + i * PIECES)
        else:
            w0 = tl.load(w_at + i * (PIECES * N))
            w1, w2, w3 = w0, w0, w0
        zero = zero_of(z_at + at * Z_STEP, shifts, n[:, None], KIND, ZERO)
        codes = operand(w0, w1, w2, w3, zero, KIND, PIECES, BN, ASM)
        total = dot(codes, tl.load(x_at + i * BK), tl.zeros((BN, BR), tl.float32), ASM)
        if KIND == PLANES:
            number = scale_at(s_at, at, at, end, 1, K // WIDTH, False)
        else:
            number = scale_at(s_at + at * N, n, n, end, 1, N, False)
        shifted = tl.load(factor + (begin + i) * RPAD + r)
        acc = tl.fma(total, number.to(tl.float32)[:, None] * shifted[None, :], acc)
    y = tl.where(r[None, :] < live, acc, 0.0)
    column = first + tl.arange(0, BN)[:, None]
    tl.store(out + (leaf.to(tl.int64) * R + r[None, :]) * N + column, y, mask=(column < N) & (r[None, :] < R))


@dataclass(frozen=True)
class Words:
    """How a format's words are read: the fields of its arrays, and the constants of `product` that it decides."""

    kind: str  # in KINDS
    payload: str
    scale: str
    zeros: str  # "" for a constant
    zero: int
    width: int

    @property
    def group(self) -> int:
        """Weights per finished sum."""
        return min(self.width, GROUP)

    @property
    def piece(self) -> tuple[int, int]:
        """OUTER and INNER of `arrange`."""
        return {"planes": (2, 4), "4 bits K-first": (1, 4), "8 bits K-first": (1, 2)}[self.kind]


def words_of(format: object) -> Words:
    """How the words of an `Int8Planes` or a `GPTQ` are read."""
    if not isinstance(format, GPTQ):
        return Words("planes", "planes", "scale", "", -128, GROUP)
    if format.symmetric:
        return Words(
            f"{format.bits} bits K-first", "qweight", "scales", "", -(1 << (format.bits - 1)), format.per_scale
        )
    return Words(f"{format.bits} bits K-first", "qweight", "scales", "qzeros", 2 - format.version, format.per_scale)


def words_leaves(x: jax.Array, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges | None) -> jax.Array:
    """float32 [leaves, R, N] over `ranges`, or over the `shares` of all of K; arguments are checked."""
    (rows, k), n = x.shape, w.shape[0]
    words = words_of(format_named(w.format))
    payload = w.arrays[words.payload]
    tile = tile_for(architecture(), Recipe(words.kind), rows)
    group = words.group
    cuts = [(a // group, b // group) for a, b in ranges or ()] or shares(k // group, PARTS)
    rpad = -(-rows // tile.rows) * tile.rows
    common = {"R": rows, "K": k, "RPAD": rpad}
    outer, inner = words.piece
    each = group // (LANES * 2 * outer * inner)
    operand, factor = launch(
        arrange,
        (x, used),
        (Out((rpad, k), jnp.float16), Out((k // group, rpad), jnp.float32)),
        (rpad, k // group),
        common | {"OUTER": outer, "INNER": inner, "EACH": each, "GROUP": group},
        warps=1,
        stages=1,
    )
    constants = common | {
        "LAYERS": payload.shape[0] if check_weight("linear", w) else 1,
        "N": n,
        "KIND": KINDS.index(words.kind),
        "ZERO": words.zero,
        "WIDTH": words.width,
        "BN": tile.columns,
        "BR": tile.rows,
        "BK": group,
        "STAGES": tile.stages,
        "ASM": ASSEMBLY,
    }
    grid = (rpad // tile.rows, -(-n // tile.columns), len(cuts))
    zeros = w.arrays[words.zeros] if words.zeros else payload
    shifts = jnp.arange(0, 32, 4 if words.kind == "4 bits K-first" else 8, dtype=jnp.int32)
    bounds = jnp.asarray(np.array(cuts, np.int32))
    arguments = (operand, factor, payload, w.arrays[words.scale], zeros, shifts, bounds, layer, used)
    outs = (Out((len(cuts), rows, n), jnp.float32),)
    return launch(product, arguments, outs, grid, constants, warps=tile.warps, stages=tile.stages)[0]
