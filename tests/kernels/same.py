"""Equality of bits, as the kernels promise it: any NaN equals any other."""

from __future__ import annotations

import numpy as np


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert found.size
    bits = np.dtype(f"u{found.dtype.itemsize}")
    different = (found.view(bits) != expected.view(bits)) & ~(np.isnan(found) & np.isnan(expected))
    if different.any():
        where = tuple(int(axis[0]) for axis in np.nonzero(different))
        raise AssertionError(
            f"{int(different.sum())} of {found.size} values differ, first at {where}: "
            f"{found[where]!r} instead of {expected[where]!r}"
        )
