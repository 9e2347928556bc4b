"""Packed codes to f16 operands in registers, as Triton functions: every decoded value is exact in f16.

`permuted` puts the columns of a tile in the order in which the matrix instruction holds them: of every UNIT columns a
thread of a quad owns one stretch of UNIT / 4 neighbours, so it reads its codes in one wide access, and the instruction
takes them in runs of RUN. Activations are written in the same order by `triton_prepare`, and a sum over K is a sum in
that order. RUN is 2 for `wgmma`, 4 for `mma.sync` (as Triton lays out operands that were bytes).

Codes of 4 bits lie two in a byte; the low ones are one operand, the high ones another, each with its own activations.
A nibble becomes an E4M3 byte by shifts alone, and the hardware turns pairs of those into f16:
- e2m1 `s ee m` as E4M3 `s 00ee m00` is the value times 2^-6, zero and subnormals included;
- an unsigned code u below 16 as E4M3 is u times 2^-9.
`decoded_shift` of `triton_recipe` takes these powers of two back, exactly, in the scale of the activations.
"""

from __future__ import annotations

import triton
import triton.language as tl

BF16 = tl.constexpr(0)
F16 = tl.constexpr(1)
E4M3 = tl.constexpr(2)
E2M1 = tl.constexpr(3)
INT4 = tl.constexpr(4)
INT8 = tl.constexpr(5)

_SPLIT_E2M1 = tl.constexpr("""
{
.reg .b32 sign, bits;
shl.b32 sign, $2, 4;
and.b32 sign, sign, 0x80808080;
shl.b32 bits, $2, 2;
lop3.b32 $0, bits, 0x1C1C1C1C, sign, 0xEA;
and.b32 sign, $2, 0x80808080;
shr.u32 bits, $2, 2;
lop3.b32 $1, bits, 0x1C1C1C1C, sign, 0xEA;
}
""")
_SPLIT_INT4 = tl.constexpr("""
{
.reg .b32 high;
and.b32 $0, $2, 0x0F0F0F0F;
shr.u32 high, $2, 4;
and.b32 $1, high, 0x0F0F0F0F;
}
""")
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


@triton.jit
def permuted(
    tile: tl.tensor, BN: tl.constexpr, WIDTH: tl.constexpr, UNIT: tl.constexpr, RUN: tl.constexpr
) -> tl.tensor:
    """A tile [BN, WIDTH] with the columns of every UNIT (16, 32 or 64) reordered for the matrix instruction."""
    tile = tl.reshape(tile, (BN, WIDTH // UNIT, 4, UNIT // (8 * RUN), 2, RUN))
    tile = tl.permute(tile, (0, 1, 3, 4, 2, 5))
    return tl.reshape(tile, (BN, WIDTH))


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
def decode_pairs(codes: tl.tensor, CODE: tl.constexpr, ASM: tl.constexpr) -> tl.tensor:
    """(low, high): the operands of the low and the high nibbles of bytes, E2M1 times 2^-6 or INT4 times 2^-9."""
    if CODE == E2M1:
        if ASM:
            low, high = tl.inline_asm_elementwise(
                _SPLIT_E2M1, "=r,=r,r", [codes], dtype=(tl.uint8, tl.uint8), is_pure=True, pack=4
            )
        else:
            low = ((codes << 4) & 0x80) | ((codes << 2) & 0x1C)
            high = (codes & 0x80) | ((codes >> 2) & 0x1C)
        low = e4m3(low)
        high = e4m3(high)
    else:
        if ASM:
            low, high = tl.inline_asm_elementwise(
                _SPLIT_INT4, "=r,=r,r", [codes], dtype=(tl.uint8, tl.uint8), is_pure=True, pack=4
            )
        else:
            low = codes & 0xF
            high = codes >> 4
        low = e4m3(low) - 0.015625
        high = e4m3(high) - 0.015625
    return low, high
