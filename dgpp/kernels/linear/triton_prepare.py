"""Activations for the f16 kernels: bfloat16 rows as f16, shifted by a power of two per row and K range.

The shift brings the largest element of the row's range into [2^15, 2^16); with it every element down to 2^-32 of the
largest is exact in f16. It depends on the row and the range alone. `factor` undoes it.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def shift_of(exponent: tl.tensor) -> tl.tensor:
    """The power of two by which a row is multiplied, from the biased exponent of its largest element: it and its
    inverse are normal numbers; a row of zeros or of tiny numbers keeps what fits."""
    return tl.minimum(142 - exponent, 126)


@triton.jit
def store_operand(
    value: tl.tensor,  # f32 [any], bfloat16 numbers
    k: tl.tensor,  # int32 likewise: their columns
    row: tl.tensor,
    leaf: tl.tensor,
    start: tl.tensor,  # where the leaf begins
    length: tl.tensor,
    live: tl.tensor,  # whether the row counts; else zeros are stored
    out: tl.tensor,  # f16 [leaves, PLANES, RPAD, PADDED]
    factor: tl.tensor,  # f32 [leaves, RPAD]
    RPAD: tl.constexpr,
    PADDED: tl.constexpr,
    PLANES: tl.constexpr,
    UNIT: tl.constexpr,
    RUN: tl.constexpr,
    EXPONENT: tl.constexpr,
    REST: tl.constexpr,  # a power of two, at least the columns that a leaf lacks; 0 for none
) -> None:
    """What `prepare` does, for one row and leaf whose values are in registers; those outside the leaf are left out."""
    j = k - start
    inside = (j >= 0) & (j < length)
    value = tl.where(inside & live, value, 0.0)
    shift = shift_of(tl.max(value.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=0) >> 23)
    power = ((shift + 127) << 23).to(tl.float32, bitcast=True)
    at = leaf.to(tl.int64) * PLANES * RPAD + row
    place = (at + (j % PLANES) * RPAD) * PADDED + placed(j // PLANES, UNIT, RUN)
    tl.store(out + place, (value * power).to(tl.float16), mask=inside)
    if REST:
        j = length + tl.arange(0, REST)
        place = (at + (j % PLANES) * RPAD) * PADDED + placed(j // PLANES, UNIT, RUN)
        tl.store(out + place, tl.zeros((REST,), tl.float16), mask=j < PADDED * PLANES)
    tl.store(factor + leaf * RPAD + row, ((127 - shift + EXPONENT) << 23).to(tl.float32, bitcast=True))


@triton.jit
def placed(j: tl.tensor, UNIT: tl.constexpr, RUN: tl.constexpr) -> tl.tensor:
    """Where the column j of a plane lies in the order of `triton_decode.permuted`."""
    if UNIT:
        c = j % UNIT
        rest = c % (UNIT // 4)
        i = (rest // (2 * RUN)) * (8 * RUN) + ((rest // RUN) % 2) * (4 * RUN) + (c // (UNIT // 4)) * RUN + rest % RUN
        j = j - c + i
    return j


@triton.jit
def prepare(
    x: tl.tensor,  # bf16 [R, K]
    bounds: tl.tensor,  # int32 [leaves, 2]
    used: tl.tensor,  # int32 scalar
    out: tl.tensor,  # f16 [leaves, PLANES, RPAD, PADDED]
    factor: tl.tensor,  # f32 [leaves, RPAD]
    K: tl.constexpr,
    EACH: tl.constexpr,  # rows of x that count as one of `used`
    RPAD: tl.constexpr,
    PADDED: tl.constexpr,
    PLANES: tl.constexpr,  # 2: even columns and odd ones apart
    UNIT: tl.constexpr,  # 0: columns in their order; else in that of `triton_decode.permuted`
    RUN: tl.constexpr,
    EXPONENT: tl.constexpr,  # the power of two by which decoded weights are too small
    BLOCK: tl.constexpr,  # a power of two, at least PADDED
) -> None:
    """Grid (RPAD, leaves). Rows from `used` on, each EACH of x, and columns past a leaf's end, are zeros."""
    row = tl.program_id(0)
    leaf = tl.program_id(1)
    start = tl.load(bounds + 2 * leaf)
    length = tl.load(bounds + 2 * leaf + 1) - start
    length = tl.where(row < tl.load(used) * EACH, length, 0)
    o = tl.arange(0, BLOCK)
    k = o
    if UNIT != 0:
        i = o % UNIT
        stretch = ((i // RUN) % 4) * (UNIT // 4)
        k = o - i + stretch + (i // (8 * RUN)) * (2 * RUN) + ((i // (4 * RUN)) % 2) * RUN + i % RUN
    x += row.to(tl.int64) * K + start
    even = tl.load(x + k * PLANES, mask=k * PLANES < length, other=0.0).to(tl.float32)
    magnitude = even.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    if PLANES == 2:
        odd = tl.load(x + k * 2 + 1, mask=k * 2 + 1 < length, other=0.0).to(tl.float32)
        magnitude = tl.maximum(magnitude, odd.to(tl.int32, bitcast=True) & 0x7FFFFFFF)
    exponent = tl.max(magnitude, axis=0) >> 23
    shift = shift_of(exponent)
    power = ((shift + 127) << 23).to(tl.float32, bitcast=True)
    base = leaf.to(tl.int64) * PLANES * RPAD + row
    tl.store(out + base * PADDED + o, (even * power).to(tl.float16), mask=o < PADDED)
    if PLANES == 2:
        tl.store(out + (base + RPAD) * PADDED + o, (odd * power).to(tl.float16), mask=o < PADDED)
    undo = ((127 - shift + EXPONENT) << 23).to(tl.float32, bitcast=True)
    tl.store(factor + leaf * RPAD + row, undo)
