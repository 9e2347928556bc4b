"""Packed codes to f16 operands in registers, as Triton functions: every decoded value is exact in f16.

`permuted` puts the columns of a tile in the order in which the matrix instruction holds them: of every UNIT columns a
thread of a quad owns one stretch of UNIT / 4 neighbours, so it reads its codes in one wide access, and the instruction
takes them in runs of RUN. Activations are written in the same order by `triton_prepare`, and a sum over K is a sum in
that order. RUN is 2 for `wgmma`, 4 for `mma.sync` (as Triton lays out operands that were bytes).

Codes of 4 bits lie two in a byte; the low ones are one operand, the high ones another, each with its own activations.
A nibble e2m1 `s ee m` becomes the E4M3 byte `s 00ee m00`, which is the value times 2^-6, zero and subnormals included,
and the hardware turns pairs of those into f16. `Recipe.exponent` says by how much they are too small; that power of two
is taken back, exactly, in the scale of the activations.
A byte b becomes the f16 of bits 0x6400 + b, which is 1024 + b, exactly: a code u of 4 bits, or 16 u where it lies high.
A nibble that is an index into the levels of NF4I8 is looked up byte by byte: `prmt` takes four indices at once from the
8 bytes of half the table and gives 0 for those of the other half.
"""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

from dgpp.formats.nf4i8 import LEVELS

BF16 = tl.constexpr(0)
F16 = tl.constexpr(1)
E4M3 = tl.constexpr(2)
E2M1 = tl.constexpr(3)
INT4 = tl.constexpr(4)
INT8 = tl.constexpr(5)
NF4 = tl.constexpr(6)

_LEVELS = tl.constexpr(tuple(LEVELS.tolist()))
_LEAST = int(LEVELS[0])
# Levels above the least; the upper eight without their highest bit, which all of them and no other have.
_TABLE = ((LEVELS - _LEAST).astype(np.uint8) & 0x7F).view("<u4").tolist()
# From eight nibbles in `codes`: `lower` and `upper`, the bytes of the table for the low nibbles and the high ones.
LOOKUP = """
.reg .b32 other, lower, upper, a, b;
xor.b32 other, codes, 0x88888888;
prmt.b32 lower, {0}, {1}, codes;
prmt.b32 upper, {2}, {3}, other;
or.b32 a, lower, upper;
shr.u32 b, codes, 16;
prmt.b32 lower, {0}, {1}, b;
shr.u32 b, other, 16;
prmt.b32 upper, {2}, {3}, b;
or.b32 b, lower, upper;
prmt.b32 lower, a, b, 0x6420;
prmt.b32 upper, a, b, 0x7531;
shl.b32 a, codes, 4;
""".format(*_TABLE)

# From four bytes of two nibbles each: the float16 pairs of the low nibbles and of the high ones.
_E2M1 = tl.constexpr("""
{
.reg .b32 sign, low, high;
.reg .b16 a, b;
shl.b32 sign, $4, 4;
and.b32 sign, sign, 0x80808080;
shl.b32 low, $4, 2;
lop3.b32 low, low, 0x1C1C1C1C, sign, 0xEA;
and.b32 sign, $4, 0x80808080;
shr.u32 high, $4, 2;
lop3.b32 high, high, 0x1C1C1C1C, sign, 0xEA;
mov.b32 {a, b}, low;
cvt.rn.f16x2.e4m3x2 $0, a;
cvt.rn.f16x2.e4m3x2 $1, b;
mov.b32 {a, b}, high;
cvt.rn.f16x2.e4m3x2 $2, a;
cvt.rn.f16x2.e4m3x2 $3, b;
}
""")
# 1024 + u less 1032, and (1024 + 16 u) / 16 less 72.
_INT4 = tl.constexpr("""
{
.reg .b32 low, high, magic, bias, sixteenth;
and.b32 low, $4, 0x0F0F0F0F;
and.b32 high, $4, 0xF0F0F0F0;
mov.b32 magic, 0x64646464;
mov.b32 bias, 0x64086408;
prmt.b32 $0, low, magic, 0x4140;
sub.rn.f16x2 $0, $0, bias;
prmt.b32 $1, low, magic, 0x4342;
sub.rn.f16x2 $1, $1, bias;
mov.b32 bias, 0xD480D480;
mov.b32 sixteenth, 0x2C002C00;
prmt.b32 $2, high, magic, 0x4140;
fma.rn.f16x2 $2, $2, sixteenth, bias;
prmt.b32 $3, high, magic, 0x4342;
fma.rn.f16x2 $3, $3, sixteenth, bias;
}
""")
_TWO_E4M3 = tl.constexpr("""
{
.reg .b32 both;
cvt.rn.f16x2.e4m3x2 both, $2;
mov.b32 {$0, $1}, both;
}
""")
_PAIRS = tl.constexpr((tl.int32,) * 4)
_INT8 = tl.constexpr("""
{
.reg .b32 low, high, bias;
mov.b32 bias, 0x64646464;
prmt.b32 low, $2, bias, 0x4140;
prmt.b32 high, $2, bias, 0x4342;
mov.b32 bias, 0x64806480;
sub.rn.f16x2 $0, low, bias;
sub.rn.f16x2 $1, high, bias;
}
""")
_NF4 = tl.constexpr(
    "{\n.reg .b32 codes, magic, bias;\nmov.b32 codes, $4;\n"
    + LOOKUP
    + f"""
lop3.b32 lower, a, 0x80808080, lower, 0xEA;
lop3.b32 upper, codes, 0x80808080, upper, 0xEA;
mov.b32 magic, 0x64646464;
mov.b32 bias, {(0x6400 - _LEAST) * 0x10001};
prmt.b32 a, lower, magic, 0x4140;
sub.rn.f16x2 $0, a, bias;
prmt.b32 a, lower, magic, 0x4342;
sub.rn.f16x2 $1, a, bias;
prmt.b32 a, upper, magic, 0x4140;
sub.rn.f16x2 $2, a, bias;
prmt.b32 a, upper, magic, 0x4342;
sub.rn.f16x2 $3, a, bias;
}}
"""
)


@triton.jit
def permuted(
    tile: tl.tensor, BN: tl.constexpr, WIDTH: tl.constexpr, UNIT: tl.constexpr, RUN: tl.constexpr
) -> tl.tensor:
    """A tile [BN, WIDTH] with the columns of every UNIT (16, 32 or 64) reordered for the matrix instruction."""
    tile = tl.reshape(tile, (BN, WIDTH // UNIT, 4, UNIT // (8 * RUN), 2, RUN))
    tile = tl.permute(tile, (0, 1, 3, 4, 2, 5))
    return tl.reshape(tile, (BN, WIDTH))


@triton.jit
def octet(
    a: tl.tensor,
    b: tl.tensor,
    c: tl.tensor,
    d: tl.tensor,
    e: tl.tensor,
    f: tl.tensor,
    g: tl.tensor,
    h: tl.tensor,
) -> tl.tensor:
    """[..., 2, 2, 2]: eight tiles [...] along the last axes, the first of which has the highest bit of the number."""
    even = tl.join(tl.join(a, e), tl.join(c, g))
    return tl.join(even, tl.join(tl.join(b, f), tl.join(d, h)))


@triton.jit
def spread(
    scale: tl.tensor,
    BN: tl.constexpr,
    WIDTH: tl.constexpr,
    UNIT: tl.constexpr,
    RUN: tl.constexpr,
    PER: tl.constexpr,
) -> tl.tensor:
    """Scales [BN, WIDTH / PER], each repeated over its PER (2 RUN or more) columns, as `permuted` has them."""
    if PER > UNIT // 4:
        QUADS: tl.constexpr = 4 * PER // UNIT  # stretches under one scale
        scale = tl.reshape(scale, (BN, WIDTH // UNIT, 4 // QUADS, 1, 1, 1, 1))
        scale = tl.broadcast_to(scale, (BN, WIDTH // UNIT, 4 // QUADS, QUADS, UNIT // (8 * RUN), 2, RUN))
        scale = tl.permute(scale, (0, 1, 4, 5, 2, 3, 6))
    else:
        EACH: tl.constexpr = UNIT // 4 // PER
        scale = tl.reshape(scale, (BN, WIDTH // UNIT, 4, EACH, 1, 1, 1))
        scale = tl.broadcast_to(scale, (BN, WIDTH // UNIT, 4, EACH, PER // (2 * RUN), 2, RUN))
        scale = tl.permute(scale, (0, 1, 3, 4, 5, 2, 6))
    return tl.reshape(scale, (BN, WIDTH))


@triton.jit
def e4m3(codes: tl.tensor) -> tl.tensor:
    """The f16 values of E4M3 codes (uint8): exact, NaN stays NaN."""
    return codes.to(tl.float8e4nv, bitcast=True).to(tl.float16)


@triton.jit
def decode(codes: tl.tensor, CODE: tl.constexpr, ASM: tl.constexpr) -> tl.tensor:
    """The operand of codes that lie one in a byte or a half word."""
    if CODE == E4M3:
        operand = e4m3(codes)
    elif CODE == INT8:
        if ASM:
            operand = tl.inline_asm_elementwise(_INT8, "=r,=r,r", [codes], dtype=tl.float16, is_pure=True, pack=4)
        else:
            operand = (codes.to(tl.float32) - 128).to(tl.float16)
    else:
        operand = codes
    return operand


@triton.jit
def level(index: tl.tensor) -> tl.tensor:
    """The f16 level of NF4I8 at every index."""
    found = tl.zeros(index.shape, tl.float16)
    for i in tl.static_range(16):
        found = tl.where(index == i, _LEVELS[i], found)
    return found.to(tl.float16)


@triton.jit
def decode_pairs(codes: tl.tensor, CODE: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """(low, high): the operands of the low and the high nibbles of bytes; E2M1 times 2^-6. The plain form of
    `decode_words`."""
    if CODE == NF4:
        low = level(codes & 0xF)
        high = level(codes >> 4)
    elif CODE == E2M1:
        low = e4m3(((codes << 4) & 0x80) | ((codes << 2) & 0x1C))
        high = e4m3((codes & 0x80) | ((codes >> 2) & 0x1C))
    else:
        low = (codes & 0xF).to(tl.float16) - 8.0
        high = (codes >> 4).to(tl.float16) - 8.0
    return low, high


@triton.jit
def decode_words(
    words: tl.tensor, CODE: tl.constexpr, BN: tl.constexpr, WIDTH: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """(low, high), float16 [BN, WIDTH] in the order of the bytes of int32 words [BN, WIDTH / 4].

    A word's bytes are neighbours in a row. Four single bytes would be two of one row and two of another, as the matrix
    instruction holds its operand, and would have to be put together first.
    """
    if CODE == NF4:
        a, b, c, d = tl.inline_asm_elementwise(_NF4, "=r,=r,=r,=r,r", [words], dtype=_PAIRS, is_pure=True, pack=1)
    elif CODE == E2M1:
        a, b, c, d = tl.inline_asm_elementwise(_E2M1, "=&r,=&r,=&r,=r,r", [words], dtype=_PAIRS, is_pure=True, pack=1)
    else:
        a, b, c, d = tl.inline_asm_elementwise(_INT4, "=&r,=&r,=&r,=&r,r", [words], dtype=_PAIRS, is_pure=True, pack=1)
    return unpaired(tl.join(a, b), BN, WIDTH), unpaired(tl.join(c, d), BN, WIDTH)


@triton.jit
def unpaired(pairs: tl.tensor, BN: tl.constexpr, WIDTH: tl.constexpr) -> tl.tensor:
    """float16 [BN, WIDTH]: the two values of every int32 word, in the order of the words."""
    both = tl.join(pairs.to(tl.int16), (pairs >> 16).to(tl.int16))
    return tl.reshape(both, (BN, WIDTH)).to(tl.float16, bitcast=True)


@triton.jit
def e4m3_words(words: tl.tensor, BN: tl.constexpr, WIDTH: tl.constexpr) -> tl.tensor:
    """float16 [BN, WIDTH]: the values of E4M3 codes, two in every int16 word [BN, WIDTH / 2], as `decode_words`."""
    even, odd = tl.inline_asm_elementwise(
        _TWO_E4M3, "=h,=h,h", [words], dtype=(tl.float16, tl.float16), is_pure=True, pack=1
    )
    return tl.reshape(tl.join(even, odd), (BN, WIDTH))
