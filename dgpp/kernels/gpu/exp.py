"""e^x as a Triton function: the operations of `dgpp.kernels.rounding.exp_f32`, the same bits with contraction off."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels import rounding

_LOG2E = tl.constexpr(rounding.LOG2E)
_HIGH = tl.constexpr(rounding.LN2_HIGH)
_LOW = tl.constexpr(rounding.LN2_LOW)
_P0 = tl.constexpr(rounding.POLYNOMIAL[0])
_P1 = tl.constexpr(rounding.POLYNOMIAL[1])
_P2 = tl.constexpr(rounding.POLYNOMIAL[2])
_P3 = tl.constexpr(rounding.POLYNOMIAL[3])
_P4 = tl.constexpr(rounding.POLYNOMIAL[4])
_P5 = tl.constexpr(rounding.POLYNOMIAL[5])
_LOWEST = tl.constexpr(rounding.LOWEST)
_HIGHEST = tl.constexpr(rounding.HIGHEST)
_SHIFT = tl.constexpr(rounding.SHIFT)


@triton.jit
def exp_f32(x: tl.tensor) -> tl.tensor:
    """e^x of float32 x; -inf gives 0."""
    clamped = tl.where(x > _HIGHEST, _HIGHEST, x)
    shifted = clamped * _LOG2E + _SHIFT
    k = shifted - _SHIFT
    r = clamped - k * _HIGH
    r = r - k * _LOW
    p = _P0 * r + _P1
    p = p * r + _P2
    p = p * r + _P3
    p = p * r + _P4
    p = p * r + _P5
    y = (p * (r * r) + r) + 1.0
    power = ((shifted.to(tl.int32, bitcast=True) + 127) << 23).to(tl.float32, bitcast=True)
    return tl.where(x < _LOWEST, 0.0, y * power)
