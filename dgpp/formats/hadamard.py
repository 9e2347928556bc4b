"""The Hadamard transform of 32 or 128 consecutive elements, in the order that kernels follow.

Sylvester's matrix H[i, j] = (-1)^popcount(i & j) is symmetric, and H / sqrt(size) is its own inverse. In float32 the
transform is log2(size) stages of butterflies at strides 1, 2, 4, ...: of a pair (a, b) the first becomes a + b and the
second a - b.
"""

from __future__ import annotations

import math

import numpy as np

from dgpp.formats.arrays import Array, library

SCALE_32 = np.float32(0.17677669529663687)
SCALE_128 = np.float32(0.08838834764831845)


def butterflies(x: Array, size: int) -> Array:
    """H times every `size` consecutive elements of float32 x [..., K], unscaled; K is a multiple of `size`."""
    lib = library(x)
    shape = x.shape
    stride = 1
    while stride < size:
        pairs = x.reshape(*shape[:-1], -1, 2, stride)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        x = lib.stack([a + b, a - b], -2).reshape(shape)
        stride *= 2
    return x


def orthonormal64(x: np.ndarray, size: int, axis: int) -> np.ndarray:
    """H / sqrt(size) times every `size` consecutive elements along `axis` of float64 `x`."""
    moved = np.moveaxis(np.asarray(x, np.float64), axis, -1)
    return np.moveaxis(np.asarray(butterflies(moved, size)) / math.sqrt(size), -1, axis)
