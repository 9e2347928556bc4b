"""The rounding to bfloat16 as a Triton function: Triton's interpreter cuts where a GPU rounds."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def to_bf16(x: tl.tensor) -> tl.tensor:
    """float32 x rounded to bfloat16, to nearest, ties to even. NaN stays NaN."""
    bits = x.to(tl.uint32, bitcast=True)
    bits = tl.where(x == x, (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16, 0x7FC0)
    return bits.to(tl.uint16).to(tl.bfloat16, bitcast=True)
