"""Activations for the f16 kernels: bfloat16 rows as f16, shifted by a power of two per row and group of columns.

The shift brings the largest element of the group into [2^15, 2^16); with it every element down to 2^-32 of the largest
is exact in f16. It depends on the row and the group alone. `factor` undoes it, where the group's finished sum is added
to the total.
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
    value: tl.tensor,  # f32 [BLOCK], bfloat16 numbers: columns `first`, `first` + 1, ... of a leaf
    first: tl.tensor,  # a multiple of GROUP
    row: tl.tensor,
    leaf: tl.tensor,
    length: tl.tensor,  # of the leaf
    live: tl.tensor,  # whether the row counts; else zeros are stored
    out: tl.tensor,  # f16 [leaves, PLANES, RPAD, PADDED]
    factor: tl.tensor,  # f32 [leaves, groups, RPAD]
    RPAD: tl.constexpr,
    PADDED: tl.constexpr,
    PLANES: tl.constexpr,
    UNIT: tl.constexpr,
    RUN: tl.constexpr,
    EXPONENT: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,  # a multiple of GROUP
) -> None:
    """What `prepare` does in groups, for columns of one row and leaf that are in registers."""
    GROUPS: tl.constexpr = PADDED * PLANES // GROUP
    j = first + tl.arange(0, BLOCK)
    value = tl.where((j < length) & live, value, 0.0)
    magnitude = tl.reshape(value.to(tl.int32, bitcast=True) & 0x7FFFFFFF, (BLOCK // GROUP, GROUP))
    shift = shift_of(tl.max(magnitude, axis=1) >> 23)
    power = ((shift + 127) << 23).to(tl.float32, bitcast=True)
    power = tl.reshape(tl.broadcast_to(power[:, None], (BLOCK // GROUP, GROUP)), (BLOCK,))
    plane = (leaf.to(tl.int64) * PLANES + j % PLANES) * RPAD + row
    tl.store(
        out + plane * PADDED + placed(j // PLANES, UNIT, RUN), (value * power).to(tl.float16), mask=j < PADDED * PLANES
    )
    g = first // GROUP + tl.arange(0, BLOCK // GROUP)
    undo = ((127 - shift + EXPONENT) << 23).to(tl.float32, bitcast=True)
    tl.store(factor + (leaf * GROUPS + g) * RPAD + row, undo, mask=g < GROUPS)


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
    factor: tl.tensor,  # f32 [leaves, groups, RPAD]
    K: tl.constexpr,
    EACH: tl.constexpr,  # rows of x that count as one of `used`
    RPAD: tl.constexpr,
    PADDED: tl.constexpr,
    PLANES: tl.constexpr,  # 2: even columns and odd ones apart
    UNIT: tl.constexpr,  # 0: columns in their order; else in that of `triton_decode.permuted`
    RUN: tl.constexpr,
    EXPONENT: tl.constexpr,  # the power of two by which decoded weights are too small
    GROUP: tl.constexpr,  # columns that have a shift of their own
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
    SHARED: tl.constexpr = GROUP // PLANES  # columns of a plane under one shift
    shift = shift_of(tl.max(tl.reshape(magnitude, (BLOCK // SHARED, SHARED)), axis=1) >> 23)
    power = ((shift + 127) << 23).to(tl.float32, bitcast=True)
    power = tl.reshape(tl.broadcast_to(power[:, None], (BLOCK // SHARED, SHARED)), (BLOCK,))
    base = leaf.to(tl.int64) * PLANES * RPAD + row
    tl.store(out + base * PADDED + o, (even * power).to(tl.float16), mask=o < PADDED)
    if PLANES == 2:
        tl.store(out + (base + RPAD) * PADDED + o, (odd * power).to(tl.float16), mask=o < PADDED)
    GROUPS: tl.constexpr = PADDED // SHARED
    g = tl.arange(0, BLOCK // SHARED)
    undo = ((127 - shift + EXPONENT) << 23).to(tl.float32, bitcast=True)
    tl.store(factor + (leaf * GROUPS + g) * RPAD + row, undo, mask=g < GROUPS)
