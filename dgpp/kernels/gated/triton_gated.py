"""Gated activations as Triton kernels, with the operand of the matrices that read the rows. The bits of `reference`."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.gates import sigmoid, silu
from dgpp.kernels.gpu.parts import added, edges
from dgpp.kernels.gpu.rounding import to_bf16
from dgpp.kernels.linear.triton_prepare import store_operand

OPENED = tl.constexpr(0)
ONCE = tl.constexpr(1)
THRICE = tl.constexpr(2)


@triton.jit
def swiglu_bf16(gate: tl.tensor, up: tl.tensor) -> tl.tensor:
    """bf16(bf16(silu(bf16(gate))) * bf16(up)) of float32."""
    opened = to_bf16(silu(to_bf16(gate).to(tl.float32)))
    return to_bf16(opened.to(tl.float32) * to_bf16(up).to(tl.float32))


@triton.jit
def gated_rows(
    first: tl.tensor,  # f32 [PARTS, R, F]: the gate of SwiGLU; or [R, F]: the mixed value
    second: tl.tensor,  # f32 [PARTS, R, F]: the other factor; or bf16 [R, F]: the gate
    bounds: tl.tensor,  # int32 [leaves, 2]
    used: tl.tensor,  # int32 scalar
    out: tl.tensor,  # bf16 [R, F]
    operand: tl.tensor,  # as in `store_operand`, likewise factor
    factor: tl.tensor,
    KIND: tl.constexpr,  # of `opened`, or SwiGLU that is rounded once or thrice
    PARTS: tl.constexpr,
    R: tl.constexpr,
    F: tl.constexpr,
    LENGTH: tl.constexpr,
    FEED: tl.constexpr,
    BLOCK: tl.constexpr,
    RPAD: tl.constexpr,
    PADDED: tl.constexpr,
    PLANES: tl.constexpr,
    UNIT: tl.constexpr,
    RUN: tl.constexpr,
    EXPONENT: tl.constexpr,
    GROUP: tl.constexpr,
) -> None:
    """Grid (R, leaves, blocks of a leaf). Rows from `used` on are not written."""
    row = tl.program_id(0)
    leaf = tl.program_id(1)
    live = row < tl.load(used)
    if live:
        start, length = edges(bounds, leaf, LENGTH)
        j = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
        inside = j < length
        at = row.to(tl.int64) * F + start + j
        a = added(first, at, inside, PARTS, R * F)
        b = added(second, at, inside, PARTS, R * F).to(tl.float32)
        if KIND != OPENED:
            y = swiglu_bf16(a, b) if KIND == THRICE else to_bf16(silu(a) * b)
        else:
            y = to_bf16(to_bf16(a).to(tl.float32) * to_bf16(sigmoid(b)).to(tl.float32))
        tl.store(out + at, y, mask=inside)
        if FEED:
            store_operand(
                y.to(tl.float32), tl.program_id(2) * BLOCK, row, leaf, length, live, operand, factor,
                RPAD, PADDED, PLANES, UNIT, RUN, EXPONENT, GROUP, BLOCK,
            )  # fmt: skip
