"""The product of any format in float64, with the roundings that its contract puts into the rows and none besides."""

from __future__ import annotations

import numpy as np

from dgpp.formats import format_named
from dgpp.formats.base import Arrays, Shape
from dgpp.formats.exl3 import EXL3, SPAN
from dgpp.formats.hadamard import orthonormal64
from dgpp.kernels.linear.ranges import Ranges


def products64(
    x: np.ndarray, arrays: Arrays, shape: Shape, format: str, ranges: Ranges
) -> tuple[np.ndarray, np.ndarray]:
    """(y, size), float64 [len(ranges), R, N] each: the sums of bfloat16 rows x [R, K], and of the products' magnitudes.

    `arrays` are those of one matrix of logical `shape` [N, K].
    """
    kind = format_named(format)
    n, k = shape
    rows = kind.prepare(x, arrays, shape)
    values = np.asarray(rows.values, np.float32).astype(np.float64)
    weight = np.asarray(kind.operand(kind.rows(arrays, shape, 0, n), shape), np.float64)
    if kind.group:
        factors = np.asarray(kind.scales(kind.rows(arrays, shape, 0, n), shape), np.float64)
        weight = weight * np.repeat(factors, kind.group, 1)[:, :k]
        if rows.scales is not None:
            values = values * np.repeat(np.asarray(rows.scales, np.float64), kind.group, 1)[:, :k]
    y = np.stack([values[:, a:b] @ weight[:, a:b].T for a, b in ranges])
    size = np.stack([np.abs(values[:, a:b]) @ np.abs(weight[:, a:b]).T for a, b in ranges])
    if isinstance(kind, EXL3):
        out = np.asarray(kind._scale(arrays, "v"), np.float64)
        y = orthonormal64(y, SPAN, -1) * out
        size = np.repeat(size.reshape(*size.shape[:-1], -1, SPAN).sum(-1), SPAN, -1) / SPAN**0.5 * np.abs(out)
        return y, size
    ones = np.ones((1, n), np.float32)
    last = np.asarray(kind.epilogue(ones, arrays, shape), np.float64)[0]
    return y * last, size * np.abs(last)
