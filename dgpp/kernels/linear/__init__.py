"""linear: rows times a weight in its packed form, `y[r, n] = sum_k x[r, k] * w[n, k]`.

    linear(x, w, layer, used) -> float32 [R, N]
    linear_leaves(x, w, layer, used, ranges) -> float32 [len(ranges), R, N]

Shapes: x bfloat16 [R, K]; w a `Weight` of logical shape [N, K] in any format, whose arrays have one more axis in front
when the layers are stacked; layer int32 scalar, which of the stacked layers (ignored when there is no layer axis,
clamped to the stack like any XLA index); used int32 scalar, how many of the rows count: rows from `used` on are
padding, cost nothing and come out as +0. `used` must be known only at run time (no constant of a compiled function).
`linear_leaves` returns the separately summed parts over the static K ranges ((start, stop), ...).

Order (a promise: the same bits from NumPy, plain JAX and the native kernel, for every number of rows): the elements of
a range are dealt to 16 lanes, element i to lane i % 16; each lane adds its products in ascending order from +0; the
lanes are added by the halving tree of `dgpp.kernels.lanes`. A range whose length is no multiple of 16 is filled up
with zeros on both sides. `linear` is the single range (0, K).

Formats other than BF16 (`dgpp.formats.base.Format` defines the parts): x is first prepared, which most formats leave as
it is; the operand takes the place of w. If the format has a scale per group of K, the order above runs over each group,
or over each part of it when a range starts inside (`dgpp.formats.reference.partial`), and the finished sums are
multiplied by their scale, rounded, and added from +0 in ascending order. The epilogue is applied to the total, once.

A product of two bfloat16 has 16 significant bits, so it is exact in float32 and a fused multiply-add gives the same
bits as a product and a sum. The exception is a product outside the normal range (below 2^-126, or 2^128 and above):
then the native kernel fuses, and plain JAX does where its compiler does. Subnormal values, of inputs and of sums,
count as zero.
"""

from __future__ import annotations

from dgpp.kernels.linear.ranges import Ranges

__all__ = ["Ranges"]
