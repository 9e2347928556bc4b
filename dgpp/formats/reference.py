"""Rows times a weight of any format in NumPy: the order of `dgpp.kernels.linear`, step by step.

This is what every kernel must equal bit for bit. Float32 as XLA and the native kernels compute it: subnormal inputs and
results count as zero. See `dgpp.formats.base.Format` for the parts of the product.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dgpp.formats.base import Activations, Arrays, Format, Shape

LANES = 16
ROWS = 64  # rows of the weight in work at a time
TINY = np.finfo(np.float32).tiny

Ranges = Sequence[tuple[int, int]]


def flush(x: Any) -> np.ndarray:
    """Float32 with subnormals replaced by zero of the same sign."""
    x = np.asarray(x, np.float32)
    return np.where(np.abs(x) < TINY, np.copysign(np.float32(0), x), x)


def lane_dot(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """float32 [R, C]: the sum over K of float32 x [R, K] and w [C, K], whose products must be exact.

    Element i goes to lane i % 16; a lane adds in ascending order from +0; the lanes are added by halving.
    """
    fill = ((0, 0), (0, -x.shape[1] % LANES))
    x, w = np.pad(x, fill), np.pad(w, fill)
    lanes = np.zeros((x.shape[0], w.shape[0], LANES), np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        for j in range(0, x.shape[1], LANES):
            lanes = flush(lanes + flush(x[:, None, j : j + LANES] * w[None, :, j : j + LANES]))
        for half in (8, 4, 2, 1):
            lanes = flush(lanes[..., :half] + lanes[..., half : 2 * half])
    return lanes[..., 0]


def partial(group: int, ranges: Ranges, k: int) -> int:
    """Elements of K in one partial sum: the group, or the common divisor that also fits the borders of the ranges.

    So a leaf that starts inside a block of scales has the same bits whether its rank holds all of K or, re-blocked,
    only the leaf.
    """
    return math.gcd(group, *(bound for pair in ranges for bound in pair if bound != k))


def linear_leaves(x: np.ndarray, arrays: Arrays, shape: Shape, format: Format, ranges: Ranges) -> np.ndarray:
    """float32 [len(ranges), R, N]: bfloat16 rows x [R, K] times one matrix, separately over each (start, stop) of K."""
    n, k = shape
    size = format.group and partial(format.group, ranges, k)
    a = format.prepare(x, arrays, shape)
    values = flush(np.asarray(a.values, np.float32))
    out = np.zeros((len(ranges), x.shape[0], n), np.float32)
    for first in range(0, n, ROWS):
        count = min(ROWS, n - first)
        block = format.rows(arrays, shape, first, count)
        w = flush(format.operand(block, shape))
        for i, (start, stop) in enumerate(ranges):
            at = out[i, :, first : first + count]
            if size is None:
                at[:] = lane_dot(values[:, start:stop], w[:, start:stop])
                continue
            scales = flush(format.scales(block, shape))
            for s in range(start, stop, size):
                e = min(s + size, stop)
                part = lane_dot(values[:, s:e], w[:, s:e])
                assert format.group is not None
                with np.errstate(invalid="ignore", over="ignore"):
                    at[:] = flush(at + flush(part * _factor(scales, a, s // format.group)))
    with np.errstate(invalid="ignore", over="ignore"):
        return flush(format.epilogue(out, arrays, shape))


def linear(x: np.ndarray, arrays: Arrays, shape: Shape, format: Format) -> np.ndarray:
    """float32 [R, N]: bfloat16 rows x [R, K] times one matrix of logical `shape` [N, K]."""
    return linear_leaves(x, arrays, shape, format, ((0, shape[1]),))[0]


def _factor(scales: np.ndarray, a: Activations, group: int) -> np.ndarray:
    """What the sum of a group is multiplied by: [1, C], or [R, C] when the activations have scales."""
    factor = scales[None, :, group]
    return factor if a.scales is None else flush(factor * flush(a.scales)[:, group, None])
