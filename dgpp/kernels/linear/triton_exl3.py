"""Rows times an EXL3 weight on the matrix units: the trellis is decoded in registers, as float16.

A tile's 256 positions lie in the order in which the matrix instruction takes its left operand, so every lane of a warp
decodes 8 neighbours, from the words that hold their 16-bit states. Of two tiles that follow each other along K a lane
takes the values at the same position together: columns of 32 are reordered so (`turn` writes activations likewise).

Order, for one output: the sum of each 128 of K starts from +0, in the order just said, and joins the total in ascending
order. Then `finish` adds the parts of a sum over all of K and transforms the outputs as the format's text says.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import triton
import triton.language as tl

from dgpp.formats import Weight, exl3, hadamard
from dgpp.formats.exl3 import EXL3
from dgpp.formats.exl3_trellis import CODEBOOKS, MARKERS, new_bits
from dgpp.formats.registry import format_named
from dgpp.kernels.gpu.clamp import clamped
from dgpp.kernels.gpu.launch import ASSEMBLY, Out, architecture, launch
from dgpp.kernels.linear.arguments import check_weight
from dgpp.kernels.linear.parts import shares
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.linear.triton_decode import octet
from dgpp.kernels.linear.triton_hadamard import butterflies
from dgpp.kernels.linear.triton_product import dot
from dgpp.kernels.linear.triton_recipe import Recipe
from dgpp.kernels.linear.triton_tiles import tile_for

_SCALE_128 = tl.constexpr(float(hadamard.SCALE_128))
BLOCK = 1024  # elements of a row that a program transforms
LANES = 32
PARTS = 4  # of a sum over all of K
EACH = 8  # positions of a tile that a lane decodes
_PAIRS = tl.constexpr((tl.float16,) * EACH)

MCG = tl.constexpr(CODEBOOKS.index("mcg"))
MUL1 = tl.constexpr(CODEBOOKS.index("mul1"))


@functools.cache
def behind(rate: float) -> tuple[int, ...]:
    """For each of a lane's positions, the bits that its last state ends behind theirs."""
    ends = np.cumsum(new_bits(rate)[:EACH])
    return tuple((ends[-1] - ends).tolist())


@functools.cache
def words(rate: float) -> int:
    """The words that hold the states of any one lane: 2 or 3."""
    bits = round(EACH * rate)
    most = max(-bits * (lane + 1) % 32 for lane in range(LANES))
    return -(-(most + behind(rate)[0] + 16) // 32)


def windows(shifts: Sequence[int]) -> dict[int, int]:
    """For each shift the place of a word that holds the 16 bits above it at byte 0, 1 or 2. Words at 0 and 32 are
    there; of the others there are as few as can be."""
    found: dict[int, int] = {}
    for first in (0, 32, *sorted(shifts)):
        if first not in found:
            found |= {at: first for at in (first, first + 8, first + 16) if at in shifts and at not in found}
    return found


CUT = {0: "and.b32 {}, {}, 0xFFFF;\n", 8: "prmt.b32 {}, {}, none, 0x4421;\n", 16: "shr.u32 {}, {}, 16;\n"}
"""PTX that takes the 16 bits above a shift out of a word."""


@functools.cache
def assembly(rate: float, book: str) -> str:
    """PTX that decodes two tiles' words to the float16 pairs of 8 positions; words come last first, then the shift."""
    count, bits = words(rate), round(EACH * rate)
    text = "{\n.reg .b32 none, a, b, factor, offset;\n.reg .b32 low<2>, high<2>, top<2>;\n"
    text += ".reg .b16 lower, upper, sum_a, sum_b;\nmov.b32 none, 0;\n"
    if book == "mul1":
        text += "mov.b32 factor, 0x1EEE1EEE;\nmov.b32 offset, 0xC931C931;\n"
    shift = f"${EACH + 2 * count}"
    for tile in range(2):
        word = [f"${EACH + 2 * i + tile}" for i in range(count)] + ["none"]
        if bits % 32:
            text += f"shf.r.clamp.b32 low{tile}, {word[0]}, {word[1]}, {shift};\n"
            text += f"shf.r.clamp.b32 high{tile}, {word[1]}, {word[2]}, {shift};\n"
        else:
            text += f"mov.b32 low{tile}, {word[0]};\nmov.b32 high{tile}, {word[1]};\n"
        third = f"${EACH + 4 + tile}" if count == 3 else "none"
        text += f"shr.u32 top{tile}, {third}, {shift};\n" if bits % 32 else f"mov.b32 top{tile}, {third};\n"
    shifts, begun = behind(rate), {0: "low", 32: "high"}
    found = windows(shifts)
    for j, above in enumerate(shifts):
        place = found[above]
        if place not in begun:
            begun[place] = f"from{place}_"
            text += f".reg .b32 from{place}_<2>;\n"
            inside = max(at for at in found if found[at] == place) % 32 + 16 <= 32
            for tile in range(2):
                low, high = (f"low{tile}", f"high{tile}") if place < 32 else (f"high{tile}", f"top{tile}")
                high = "none" if inside else high  # a word that nobody reads is not made
                text += f"shf.r.clamp.b32 from{place}_{tile}, {low}, {high}, {place % 32};\n"
        for tile, register in enumerate("ab"):
            text += CUT[above - place].format(register, f"{begun[place]}{tile}")
            if book == "mul1":
                text += f"mul.lo.u32 {register}, {register}, {MARKERS['mul1']};\n"
                text += f"dp4a.u32.u32 {register}, {register}, 0x01010101, 0x6400;\n"
            elif book == "mcg":
                text += f"mul.lo.u32 {register}, {register}, {MARKERS['mcg']};\n"
            else:
                text += f"mad.lo.u32 {register}, {register}, 89226354, 64248484;\n"
            if book != "mul1":
                text += f"lop3.b32 {register}, {register}, 0x8FFF8FFF, 0x3B603B60, 0x6A;\n"
        if book == "mul1":
            # Put together by a product: the unit for shifts and bytes has the most to do.
            text += f"mad.lo.u32 a, b, 0x10000, a;\nfma.rn.f16x2 ${j}, a, factor, offset;\n"
        else:
            for register in "ab":
                text += f"mov.b32 {{lower, upper}}, {register};\nadd.rn.f16 sum_{register}, lower, upper;\n"
            text += f"mov.b32 ${j}, {{sum_a, sum_b}};\n"
    return text + "}"


@triton.jit
def value(
    w0: tl.tensor,
    w1: tl.tensor,
    w2: tl.tensor,
    shift: tl.tensor,
    BEHIND: tl.constexpr,
    BOOK: tl.constexpr,
) -> tl.tensor:
    """float16: the value at one position of tiles, the plain form of `assembly`."""
    w0 = w0.to(tl.int64) & 0xFFFFFFFF
    w1 = w1.to(tl.int64) & 0xFFFFFFFF
    w2 = w2.to(tl.int64) & 0xFFFFFFFF
    by = shift.to(tl.int64) + BEHIND
    late = (w0 >> by) | (w1 << (32 - by))
    middle = (w1 >> (by - 32)) | (w2 << (64 - by))
    state = tl.where(by < 32, late, tl.where(by < 64, middle, w2 >> (by - 64))) & 0xFFFF
    if BOOK == MUL1:
        state = (state * 0x83DCD12D) & 0xFFFFFFFF
        total = 1024 + (state & 0xFF) + ((state >> 8) & 0xFF) + ((state >> 16) & 0xFF) + (state >> 24)
        found = total.to(tl.float64) * 0.00676727294921875 - 10.3828125
    else:
        if BOOK == MCG:
            state = state * 0xCBAC1FED
        else:
            state = state * 89226354 + 64248484
        state = (state & 0x8FFF8FFF) ^ 0x3B603B60
        low = state.to(tl.int16).to(tl.float16, bitcast=True)
        high = (state >> 16).to(tl.int16).to(tl.float16, bitcast=True)
        found = low.to(tl.float32) + high.to(tl.float32)
    return found.to(tl.float16)


@triton.jit
def operand(
    w0: tl.tensor,  # int32 [32, N tiles, K tiles]: the last words of the lanes' states,
    w1: tl.tensor,  # the ones before them
    w2: tl.tensor,  # and before those
    shift: tl.tensor,  # int32 [32, 1, 1]: the bits that follow in w0
    DECODE: tl.constexpr,  # the text of `assembly`
    WORDS: tl.constexpr,
    BOOK: tl.constexpr,
    BEHIND: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    ASM: tl.constexpr,
) -> tl.tensor:
    """float16 [BN, BK], with every 32 columns in the order of the module's text."""
    shift = tl.broadcast_to(shift, (32, BN // 16, BK // 16))
    if ASM:
        if WORDS == 3:
            p0, p1, p2, p3, p4, p5, p6, p7 = tl.inline_asm_elementwise(
                DECODE,
                "=r,=r,=r,=r,=r,=r,=r,=r,r,r,r,r,r,r,r,r",
                [w0, w1, w2, shift],
                dtype=_PAIRS,
                is_pure=True,
                pack=2,
            )
        else:
            p0, p1, p2, p3, p4, p5, p6, p7 = tl.inline_asm_elementwise(
                DECODE,
                "=r,=r,=r,=r,=r,=r,=r,=r,r,r,r,r,r,r",
                [w0, w1, shift],
                dtype=_PAIRS,
                is_pure=True,
                pack=2,
            )
    else:
        p0 = value(w0, w1, w2, shift, BEHIND[0], BOOK)
        p1 = value(w0, w1, w2, shift, BEHIND[1], BOOK)
        p2 = value(w0, w1, w2, shift, BEHIND[2], BOOK)
        p3 = value(w0, w1, w2, shift, BEHIND[3], BOOK)
        p4 = value(w0, w1, w2, shift, BEHIND[4], BOOK)
        p5 = value(w0, w1, w2, shift, BEHIND[5], BOOK)
        p6 = value(w0, w1, w2, shift, BEHIND[6], BOOK)
        p7 = value(w0, w1, w2, shift, BEHIND[7], BOOK)
    tile = octet(p0, p1, p2, p3, p4, p5, p6, p7)
    # Along K: pair of tiles, half of a tile, low bit of the position, lane of the quad, tile of the pair.
    tile = tl.reshape(tile, (8, 4, BN // 16, BK // 32, 2, 2, 2, 2))
    return tl.reshape(tl.permute(tile, (2, 5, 0, 3, 6, 7, 1, 4)), (BN, BK))


@triton.jit
def signs(scale: tl.tensor, at: tl.tensor, LEGACY: tl.constexpr) -> tl.tensor:
    """float32: the scales of channels, or their signs where these are bits of int16 words."""
    if LEGACY:
        word = tl.load(scale + at // 16).to(tl.int32)
        found = (1 - 2 * ((word >> (at % 16).to(tl.int32)) & 1)).to(tl.float32)
    else:
        found = tl.load(scale + at).to(tl.float32)
    return found


@triton.jit
def turn(
    x: tl.tensor,  # bf16 [R, K]
    suh: tl.tensor,  # f16 [layers, K], or int16 [layers, K / 16]
    layer: tl.tensor,  # int32 scalar
    used: tl.tensor,  # int32 scalar
    out: tl.tensor,  # f16 [RPAD, K]
    LAYERS: tl.constexpr,
    R: tl.constexpr,
    K: tl.constexpr,
    LEGACY: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Grid (RPAD, blocks of K): f16(H128 f16(x * suh) / sqrt(128)), reordered. Rows from `used` on are zeros."""
    row = tl.program_id(0)
    live = row < tl.minimum(tl.load(used), R)
    place = clamped(tl.load(layer), LAYERS).to(tl.int64)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = row.to(tl.int64) * K + k
    value = tl.load(x + at, mask=live & (k < K), other=0.0).to(tl.float32)
    scaled = (value * signs(suh, place * K + tl.minimum(k, K - 1), LEGACY)).to(tl.float16)
    turned = butterflies(scaled.to(tl.float32), BLOCK, 7) * _SCALE_128
    i = k % 32
    to = i % 16 // 8 * 16 + i % 2 * 8 + i % 8 // 2 * 2 + i // 16
    tl.store(out + at - i + to, turned.to(tl.float16), mask=k < K)


@triton.jit
def finish(
    parts: tl.tensor,  # f32 [PARTS * LEAVES, R, N]
    svh: tl.tensor,  # f16 [layers, N], or int16 [layers, N / 16]
    layer: tl.tensor,  # int32 scalar
    used: tl.tensor,  # int32 scalar
    out: tl.tensor,  # f32 [LEAVES, R, N]
    LAYERS: tl.constexpr,
    R: tl.constexpr,
    N: tl.constexpr,
    PARTS: tl.constexpr,  # of a sum over all of K, added in ascending order
    LEGACY: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Grid (R, blocks of N, LEAVES): H128 / sqrt(128) of every 128 outputs, times svh."""
    place = clamped(tl.load(layer), LAYERS).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    leaf = tl.program_id(2).to(tl.int64)
    at = (leaf * PARTS * R + tl.program_id(0)) * N + n
    y = tl.load(parts + at, mask=n < N, other=0.0)
    for part in range(1, PARTS):
        y += tl.load(parts + at + part * (R * N), mask=n < N, other=0.0)
    y = butterflies(y, BLOCK, 7) * _SCALE_128
    y = y * signs(svh, place * N + tl.minimum(n, N - 1), LEGACY)
    y = tl.where(tl.program_id(0) < tl.load(used), y, 0.0)  # a sign makes -0 of what padding rows hold
    tl.store(out + (leaf * R + tl.program_id(0)) * N + n, y, mask=n < N)


@triton.jit
def three(
    at0: tl.tensor, at1: tl.tensor, at2: tl.tensor, offset: tl.tensor, some: tl.tensor, WORDS: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """The words `offset` behind three places, the third again the second where WORDS is 2."""
    w1 = tl.load(at1 + offset, mask=some)
    w2 = w1
    if WORDS == 3:
        w2 = tl.load(at2 + offset, mask=some)
    return tl.load(at0 + offset, mask=some), w1, w2


@triton.jit
def product(
    x: tl.tensor,  # f16 [RPAD, K], as `turn` leaves it
    trellis: tl.tensor,  # int16 [layers, K / 16, N / 16, 2 * TILE_WORDS]
    bounds: tl.tensor,  # int32 [leaves, 2]: steps
    layer: tl.tensor,  # int32 scalar
    used: tl.tensor,  # int32 scalar
    out: tl.tensor,  # f32 [leaves, R, N]
    LAYERS: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    R: tl.constexpr,
    TILE_WORDS: tl.constexpr,  # 32-bit words of a tile
    WORDS: tl.constexpr,
    BEHIND: tl.constexpr,
    BOOK: tl.constexpr,
    DECODE: tl.constexpr,
    BN: tl.constexpr,
    BR: tl.constexpr,
    BK: tl.constexpr,  # 128
    ASM: tl.constexpr,
) -> None:
    """Grid (row tiles, column tiles, leaves), as `triton_matrices.product`."""
    leaf = tl.program_id(2)
    first = tl.program_id(1) * BN
    place = clamped(tl.load(layer), LAYERS).to(tl.int64)
    live = tl.load(used)
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    begin = tl.load(bounds + 2 * leaf)
    steps = tl.where(tl.program_id(0) * BR < live, tl.load(bounds + 2 * leaf + 1) - begin, 0)

    lane = tl.arange(0, 32)
    end = (lane + 1) * TILE_WORDS  # in bits: a lane has TILE_WORDS of them
    last = (end - 1) // 32
    shift = (last * 32 + 32 - end)[:, None, None]
    HALF: tl.constexpr = BK // 2  # decoded at a time: with fewer registers more programs share a multiprocessor
    k_tile = tl.arange(0, HALF // 16)[None, None, :]
    n_tile = tl.minimum(first // 16 + tl.arange(0, BN // 16), N // 16 - 1)[None, :, None]
    t_at = trellis.to(tl.pointer_type(tl.int32)) + place * (K // 16 * (N // 16) * TILE_WORDS)
    t_at += ((begin * (BK // 16) + k_tile) * (N // 16) + n_tile) * TILE_WORDS
    at0 = t_at + last[:, None, None]
    at1 = t_at + ((last + TILE_WORDS - 1) % TILE_WORDS)[:, None, None]
    at2 = t_at + ((last + TILE_WORDS - 2) % TILE_WORDS)[:, None, None]
    STRIDE: tl.constexpr = HALF // 16 * (N // 16) * TILE_WORDS
    x_at = x + r[None, :].to(tl.int64) * K + begin * BK + tl.arange(0, HALF)[:, None]

    acc = tl.zeros((BN, BR), tl.float32)
    w0, w1, w2 = three(at0, at1, at2, 0, steps > 0, WORDS)
    v0, v1, v2 = three(at0, at1, at2, STRIDE, steps > 0, WORDS)
    for i in range(steps):
        # The codes of the next step are under way during this one.
        following = tl.minimum(i + 1, steps - 1) * (2 * STRIDE)
        q = operand(w0, w1, w2, shift, DECODE, WORDS, BOOK, BEHIND, BN, HALF, ASM)
        w0, w1, w2 = three(at0, at1, at2, following, True, WORDS)
        total = dot(q, tl.load(x_at + i * BK), tl.zeros((BN, BR), tl.float32), ASM)
        q = operand(v0, v1, v2, shift, DECODE, WORDS, BOOK, BEHIND, BN, HALF, ASM)
        v0, v1, v2 = three(at0, at1, at2, following + STRIDE, True, WORDS)
        total = dot(q, tl.load(x_at + i * BK + HALF), total, ASM)
        acc = tl.fma(total, 1.0, acc)
    y = tl.where(r[None, :] < live, acc, 0.0)
    column = first + tl.arange(0, BN)[:, None]
    tl.store(out + (leaf.to(tl.int64) * R + r[None, :]) * N + column, y, mask=(column < N) & (r[None, :] < R))


def exl3_leaves(x: jax.Array, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges | None) -> jax.Array:
    """float32 [leaves, R, N] over `ranges`, or [1, R, N] over all of K; arguments are checked."""
    format = format_named(w.format)
    assert isinstance(format, EXL3)
    (rows, k), n = x.shape, w.shape[0]
    tile = tile_for(architecture(), Recipe("exl3"), rows)
    trellis = w.arrays["trellis"]
    layers = trellis.shape[0] if check_weight("linear", w) else 1
    suh, svh = (w.arrays[name] for name in (("su", "sv") if format.legacy else ("suh", "svh")))
    cuts = [(a // exl3.SPAN, b // exl3.SPAN) for a, b in ranges or ()] or shares(k // exl3.SPAN, PARTS)
    rpad = -(-rows // tile.rows) * tile.rows
    common = {"LAYERS": layers, "R": rows, "LEGACY": format.legacy}
    block = min(BLOCK, 1 << (k - 1).bit_length())
    (turned,) = launch(
        turn,
        (x, suh, layer, used),
        (Out((rpad, k), jnp.float16),),
        (rpad, -(-k // block)),
        common | {"K": k, "BLOCK": block},
        warps=4,
        stages=1,
    )
    constants = {
        "LAYERS": layers,
        "N": n,
        "K": k,
        "R": rows,
        "TILE_WORDS": trellis.shape[-1] // 2,
        "WORDS": words(format.rate),
        "BEHIND": behind(format.rate),
        "BOOK": CODEBOOKS.index(format.book),
        "DECODE": assembly(format.rate, format.book),
        "BN": tile.columns,
        "BR": tile.rows,
        "BK": exl3.SPAN,
        "ASM": ASSEMBLY,
    }
    (sums,) = launch(
        product,
        (turned, trellis, jnp.asarray(np.array(cuts, np.int32)), layer, used),
        (Out((len(cuts), rows, n), jnp.float32),),
        (rpad // tile.rows, -(-n // tile.columns), len(cuts)),
        constants,
        warps=tile.warps,
        stages=tile.stages,
    )
    leaves = len(ranges) if ranges else 1
    block = min(BLOCK, 1 << (n - 1).bit_length())
    return launch(
        finish,
        (sums, svh, layer, used),
        (Out((leaves, rows, n), jnp.float32),),
        (rows, -(-n // block), leaves),
        common | {"N": n, "PARTS": len(cuts) // leaves, "BLOCK": block},
        warps=4,
        stages=1,
    )[0]
