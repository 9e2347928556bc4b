from __future__ import annotations

import ctypes
import ctypes.util
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpp.engine.sampler.fma import fma, fma_f
from tests.engine.sampler.oracle import nearest_f32

libm = ctypes.CDLL(ctypes.util.find_library("m"))
libm.fma.restype, libm.fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3

numbers = st.floats(-1e140, 1e140) | st.floats(-4, 4) | st.floats(-1e-150, 1e-150)
singles = (
    st.floats(-(2.0**99), 2.0**99, width=32) | st.floats(-4, 4, width=32) | st.floats(-(2.0**-122), 2.0**-122, width=32)
)


@pytest.mark.parametrize(
    ("a", "b", "c", "expected"),
    [
        (1 + 2.0**-52, 1 - 2.0**-52, -1.0, -(2.0**-104)),  # two roundings give 0
        (1 + 2.0**-30, 1 + 2.0**-30, -1 - 2.0**-29, 2.0**-60),
        (2.0**-1000, 2.0**-74, 2.0**-1074, 2.0**-1073),
        (2.0**-1000, 2.0**-75, 2.0**-1074, 2.0**-1073),  # half a place: ties to even
        (2.0**-1000, 2.0**-76, 2.0**-1074, 2.0**-1074),
        (3.0, 5.0, -15.0, 0.0),
    ],
)
def test_fma_rounds_once(a: float, b: float, c: float, expected: float) -> None:
    assert fma(a, b, c).hex() == expected.hex()


@settings(deadline=None)
@given(numbers, numbers, numbers)
def test_fma_is_the_machines(a: float, b: float, c: float) -> None:
    assert fma(a, b, c) == libm.fma(a, b, c)


@pytest.mark.parametrize(("a", "error"), [(math.inf, OverflowError), (math.nan, ValueError)])
def test_fma_refuses_what_is_not_finite(a: float, error: type[Exception]) -> None:
    with pytest.raises(error):
        fma(a, 1.0, 1.0)


def test_fma_f_does_not_round_twice() -> None:
    """1 + 2^-24 + 2^-70 lies just above the middle of two float32 values, and on it once rounded to float64."""
    a, count = np.float32(8384513 * 2.0**-70), 8392705.0
    assert Fraction(float(a)) * Fraction(count) == Fraction(2) ** -24 + Fraction(2) ** -70
    up = fma_f(a, np.array([count]), np.array([1], np.float32))
    down = fma_f(-a, np.array([count]), np.array([-1], np.float32))
    assert up[0] == np.float32(1 + 2.0**-23)
    assert down[0] == -up[0]
    assert np.float32(float(a) * count + 1.0) == 1


@settings(deadline=None)
@given(singles, st.lists(st.tuples(st.integers(1, 1 << 20), singles), min_size=1, max_size=8))
def test_fma_f_rounds_once(a: float, pairs: list[tuple[int, float]]) -> None:
    counts, addends = (np.array(column) for column in zip(*pairs, strict=True))
    result = fma_f(np.float32(a), counts.astype(np.float64), addends.astype(np.float32))
    for (count, addend), value in zip(pairs, result, strict=True):
        assert value == nearest_f32(Fraction(a) * count + Fraction(addend))


def test_fma_f_keeps_minus_infinity() -> None:
    result = fma_f(np.float32(-2), np.array([3.0, 3.0]), np.array([-np.inf, 1], np.float32))
    assert result.tolist() == [-np.inf, -5.0]
