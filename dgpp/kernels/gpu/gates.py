"""Gates as Triton functions: the operations of `dgpp.kernels.rounding`, the same bits with contraction off."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels import rounding
from dgpp.kernels.gpu.exp import exp_f32

_SIGMOID_ZERO = tl.constexpr(rounding.SIGMOID_ZERO)
_LINEAR_FROM = tl.constexpr(rounding.LINEAR_FROM)
_SQRT_HALF = tl.constexpr(rounding.SQRT_HALF)
_TINY = tl.constexpr(rounding.TINY)
_LOW = tl.constexpr(rounding.LN2_LOW)
_HIGH = tl.constexpr(rounding.LN2_HIGH)
_L0 = tl.constexpr(rounding.LOG_POLYNOMIAL[0])
_L1 = tl.constexpr(rounding.LOG_POLYNOMIAL[1])
_L2 = tl.constexpr(rounding.LOG_POLYNOMIAL[2])
_L3 = tl.constexpr(rounding.LOG_POLYNOMIAL[3])
_L4 = tl.constexpr(rounding.LOG_POLYNOMIAL[4])
_L5 = tl.constexpr(rounding.LOG_POLYNOMIAL[5])
_L6 = tl.constexpr(rounding.LOG_POLYNOMIAL[6])
_L7 = tl.constexpr(rounding.LOG_POLYNOMIAL[7])
_L8 = tl.constexpr(rounding.LOG_POLYNOMIAL[8])


@triton.jit
def silu(x: tl.tensor) -> tl.tensor:
    """x / (1 + e^-x) of float32 x."""
    return tl.div_rn(x, 1.0 + exp_f32(-x))


@triton.jit
def sigmoid(x: tl.tensor) -> tl.tensor:
    """1 / (1 + e^-x) of float32 x; 0 where it would become subnormal."""
    below = 1.0 + exp_f32(-x)
    return tl.where(x < _SIGMOID_ZERO, 0.0, tl.div_rn(below * 0.0 + 1.0, below))


@triton.jit
def log_f32(x: tl.tensor) -> tl.tensor:
    """ln(x) of float32 x >= 0."""
    bits = x.to(tl.int32, bitcast=True)
    mantissa = ((bits & 0x7FFFFF) | 0x3F000000).to(tl.float32, bitcast=True)
    low = mantissa < _SQRT_HALF
    e = ((bits >> 23) - 126 - low.to(tl.int32)).to(tl.float32)
    r = tl.where(low, mantissa + mantissa, mantissa) - 1.0
    square = r * r
    p = _L0 * r + _L1
    p = p * r + _L2
    p = p * r + _L3
    p = p * r + _L4
    p = p * r + _L5
    p = p * r + _L6
    p = p * r + _L7
    p = p * r + _L8
    y = p * r * square + e * _LOW
    y = r + (y - 0.5 * square)
    y = y + e * _HIGH
    y = tl.where(x == float("inf"), float("inf"), y)
    return tl.where(x < _TINY, float("-inf"), tl.where(x >= 0, y, float("nan")))


@triton.jit
def softplus(x: tl.tensor) -> tl.tensor:
    """ln(1 + e^x) of float32 x, and x itself above 20."""
    small = exp_f32(tl.minimum(x, _LINEAR_FROM, propagate_nan=tl.PropagateNan.ALL))
    u = 1.0 + small
    lost = u - 1.0
    ratio = tl.div_rn(small, tl.where(lost == 0, 1.0, lost))
    below = tl.where((lost == 0) | (u == float("inf")), small, log_f32(u) * ratio)
    return tl.where(x > _LINEAR_FROM, x, below)
