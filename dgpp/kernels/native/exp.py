"""exp_f32 of `dgpp.kernels.rounding` on registers: the same operations, the same bits."""

from __future__ import annotations

import numpy as np
from llvmlite import ir

from dgpp.kernels.native.emit import I32, Emit, Value, f32, i32, lanes
from dgpp.kernels.rounding import HIGHEST, LN2_HIGH, LN2_LOW, LOG2E, LOWEST, POLYNOMIAL, SHIFT


def exp_f32(e: Emit, x: Value) -> Value:
    """e^x of a vector of float32. A product is rounded unless it is asked to be fused, so `fmul` and `fadd` will do."""
    width = x.type.count

    def constant(number: float) -> Value:
        return lanes(f32(float(np.float32(number))), width)

    clamped = e.select(e.fcmp_ordered(">", x, constant(HIGHEST)), constant(HIGHEST), x)
    shifted = e.fadd(e.fmul(clamped, constant(LOG2E)), constant(SHIFT))
    k = e.fsub(shifted, constant(SHIFT))
    r = e.fsub(clamped, e.fmul(k, constant(LN2_HIGH)))
    r = e.fsub(r, e.fmul(k, constant(LN2_LOW)))
    p = constant(POLYNOMIAL[0])
    for c in POLYNOMIAL[1:]:
        p = e.fadd(e.fmul(p, r), constant(c))
    y = e.fadd(e.fadd(e.fmul(p, e.fmul(r, r)), r), constant(1.0))
    words = ir.VectorType(I32, width)
    exponent = e.shl(e.add(e.bitcast(shifted, words), lanes(i32(127), width)), lanes(i32(23), width))
    return e.select(e.fcmp_ordered("<", x, constant(LOWEST)), constant(0.0), e.fmul(y, e.bitcast(exponent, x.type)))


def to_bf16(e: Emit, x: Value) -> Value:
    """The nearest bfloat16 of each float32, ties to even, as float32. NaN stays NaN: its payload came from bfloat16."""
    width = x.type.count
    words = ir.VectorType(I32, width)
    bits = e.bitcast(x, words)
    odd = e.and_(e.lshr(bits, lanes(i32(16), width)), lanes(i32(1), width))
    bits = e.add(bits, e.add(odd, lanes(i32(0x7FFF), width)))
    return e.bitcast(e.and_(bits, lanes(i32(-0x10000), width)), x.type)
