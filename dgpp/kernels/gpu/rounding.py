"""Roundings as Triton functions: to bfloat16, where Triton's interpreter cuts and a GPU rounds; quotients and roots."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.launch import INTERPRETED

_CUTS = tl.constexpr(INTERPRETED)


@triton.jit
def to_bf16(x: tl.tensor) -> tl.tensor:
    """float32 x rounded to bfloat16, to nearest, ties to even. NaN stays NaN."""
    if _CUTS:
        bits = x.to(tl.uint32, bitcast=True)
        bits = tl.where(x == x, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16, 0x7FC0)
        y = bits.to(tl.uint16).to(tl.bfloat16, bitcast=True)
    else:  # two at once, where a plain conversion is one on the slowest unit
        y = tl.inline_asm_elementwise(
            "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r", [x], dtype=tl.bfloat16, is_pure=True, pack=2
        )
    return y


@triton.jit
def quotient(x: tl.tensor, divisor: tl.tensor, live: tl.tensor) -> tl.tensor:
    """x / divisor of float32 x, correctly rounded, where it is live; 1 elsewhere, if the divisor is a number: a
    division of 0 leaves the short way, and takes its whole warp along."""
    return tl.div_rn(tl.where(live, x, divisor), tl.broadcast_to(divisor, x.shape))


@triton.jit
def reciprocal_root(x: tl.tensor) -> tl.tensor:
    """1 / sqrt(x) of float32 x, the root and the division each correctly rounded."""
    return tl.div_rn(x * 0.0 + 1.0, tl.sqrt_rn(x))
