"""The running softmax of the attention kernels, on the scale of log2, and its matrix products.

A state is (top, length, sums): the largest score so far, the sum of the weights 2^(score - top) and the sums of the
weighted values. The powers are those of the hardware (`ex2.approx.ftz`, within 2 ulp; a weight is then rounded to
bfloat16): their bits are those of the architecture. Scores are products times fl32(scale * log2(e)), which the
difference from the top takes up in one fused multiply-add.

A tile has columns, each of one row and one query head. As the matrix instructions have a long side and a short one,
tiles of few columns lie the other way round: `SWAPPED`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.rounding import quotient

LOG2E = tl.constexpr(1.44269504)


@triton.jit
def dot(a: tl.tensor, b: tl.tensor, acc: tl.tensor, ASM: tl.constexpr) -> tl.tensor:
    """acc + a @ b."""
    if ASM:
        acc = tl.dot(a, b, acc)
    else:
        acc = tl.dot(a.to(tl.float32), b.to(tl.float32), acc)  # the interpreter multiplies no bfloat16
    return acc


@triton.jit
def columns(x: tl.tensor, SWAPPED: tl.constexpr) -> tl.tensor:
    """A value for each column of a tile, so that it meets all of the other axis."""
    return x[None, :] if SWAPPED else x[:, None]


@triton.jit
def others(x: tl.tensor, SWAPPED: tl.constexpr) -> tl.tensor:
    """A value for each token or dimension, so that it meets all columns."""
    return x[:, None] if SWAPPED else x[None, :]


@triton.jit
def power(x: tl.tensor, ASM: tl.constexpr) -> tl.tensor:
    """2^x; 0 where that is subnormal."""
    if ASM:
        y = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        y = tl.exp2(x)
    return y


@triton.jit
def base_of(top: tl.tensor) -> tl.tensor:
    """What scores are taken relative to: the top, or 0 where there is none, so that no infinities are subtracted."""
    return tl.where(top == float("-inf"), 0.0, top)


@triton.jit
def joined(
    top: tl.tensor,  # [N], likewise length, more_top, more_length
    length: tl.tensor,
    sums: tl.tensor,  # [N, D], or [D, N] swapped, likewise more_sums
    more_top: tl.tensor,
    more_length: tl.tensor,
    more_sums: tl.tensor,
    SWAPPED: tl.constexpr,
    ASM: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """The state of two runs of tokens, one after the other."""
    new_top = tl.maximum(top, more_top)
    kept = power(top - base_of(new_top), ASM)
    added = power(more_top - base_of(new_top), ASM)
    length = length * kept + more_length * added
    sums = sums * columns(kept, SWAPPED) + more_sums * columns(added, SWAPPED)
    return new_top, length, sums


@triton.jit
def finished(
    top: tl.tensor,
    length: tl.tensor,
    sums: tl.tensor,
    sink: tl.tensor,  # [N]: one more logit with a weight and no value, -inf for none
    live: tl.tensor,  # bool [N]
    SWAPPED: tl.constexpr,
    ASM: tl.constexpr,
) -> tl.tensor:
    """sums / length with the sink in the length, NaN for what is not finite; +0 for columns that are not live."""
    x = sink * LOG2E
    new_top = tl.maximum(top, x)
    kept = power(top - base_of(new_top), ASM)
    length = length * kept + power(x - base_of(new_top), ASM)
    divisor = columns(tl.where(live, length, 1.0), SWAPPED)
    y = quotient(sums * columns(kept, SWAPPED), divisor, columns(live, SWAPPED))
    y = tl.where(tl.abs(y) < float("inf"), y, float("nan"))
    return tl.where(columns(live, SWAPPED), y, 0.0)


@triton.jit
def add_values(
    acc: tl.tensor, weight: tl.tensor, values: tl.tensor, ASM: tl.constexpr, SWAPPED: tl.constexpr
) -> tl.tensor:
    """`acc` and a block's weighted values."""
    return dot(tl.trans(values), weight, acc, ASM) if SWAPPED else dot(weight, values, acc, ASM)


@triton.jit
def add_unclean(
    acc: tl.tensor, weight: tl.tensor, values: tl.tensor, seen: tl.tensor, ASM: tl.constexpr, SWAPPED: tl.constexpr
) -> tl.tensor:
    """`add_values` where values may not be finite: those make NaN of their dimension for the columns that see them.

    In the plain product they would do so for all columns, as zero times them is NaN.
    """
    bits = values.to(tl.int16, bitcast=True)
    bad = (bits & 0x7F80) == 0x7F80
    acc = add_values(acc, weight, tl.where(bad, 0, bits).to(tl.bfloat16, bitcast=True), ASM, SWAPPED)
    marks = tl.where(bad, 1.0, 0.0).to(tl.bfloat16)
    hits = add_values(tl.zeros_like(acc), tl.where(seen, 1.0, 0.0).to(tl.bfloat16), marks, ASM, SWAPPED)
    return tl.where(hits > 0, float("nan"), acc)


@triton.jit
def with_block(
    top: tl.tensor,  # [N]
    length: tl.tensor,  # [N, 16], or [64, N] swapped: the same in all of the other axis
    acc: tl.tensor,  # [N, D], or swapped, and so `queries`
    queries: tl.tensor,
    keys: tl.tensor,  # [BLOCK, D], never swapped, and so `values`
    values: tl.tensor,
    token: tl.tensor,  # [BLOCK]
    at: tl.tensor,  # [N]: the last token that a column sees, and the first
    low: tl.tensor,
    several: tl.tensor,  # whether columns may differ in what they see
    FACTOR: tl.constexpr,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    CHECKED: tl.constexpr,  # whether some columns do not see some of the tokens
    SWAPPED: tl.constexpr,
    ASM: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """The state after one more block of tokens."""
    if SWAPPED:
        x = dot(keys, queries, tl.zeros((BLOCK, N), tl.float32), ASM)
    else:
        x = dot(queries, tl.trans(keys), tl.zeros((N, BLOCK), tl.float32), ASM)
    if CHECKED:
        seen = (others(token, SWAPPED) <= columns(at, SWAPPED)) & (others(token, SWAPPED) >= columns(low, SWAPPED))
        x = tl.where(seen, x, float("-inf"))
    new_top = tl.maximum(top, tl.max(x, axis=0 if SWAPPED else 1) * FACTOR)
    base = base_of(new_top)
    weight = power(tl.fma(x, FACTOR, tl.broadcast_to(columns(-base, SWAPPED), x.shape)), ASM).to(tl.bfloat16)
    shrink = columns(power(top - base, ASM), SWAPPED)
    # The length is a sum of the matrix unit, so that its order is that of the values whatever the tile.
    if SWAPPED:
        length = dot(tl.full((64, BLOCK), 1.0, tl.float32).to(tl.bfloat16), weight, length * shrink, ASM)
    else:
        length = dot(weight, tl.full((BLOCK, 16), 1.0, tl.float32).to(tl.bfloat16), length * shrink, ASM)
    acc = acc * shrink
    if CHECKED:
        largest = tl.max(tl.max((values.to(tl.int16, bitcast=True) & 0x7FFF).to(tl.int32), axis=1), axis=0)
        if several & (largest >= 0x7F80):
            acc = add_unclean(acc, weight, values, seen, ASM, SWAPPED)
        else:
            acc = add_values(acc, weight, values, ASM, SWAPPED)
    else:
        acc = add_values(acc, weight, values, ASM, SWAPPED)
    return new_top, length, acc
