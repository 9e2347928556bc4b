from __future__ import annotations

import hypothesis.strategies as st
import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

from dgpp.layers.norm import rms_norm, tree_sum

BF16 = ml_dtypes.bfloat16
ZERO = np.int32(0)
norm = jax.jit(rms_norm, static_argnums=2)


def numpy_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    h = x.astype(np.float32)
    squares = h * h
    width = 1 << (x.shape[1] - 1).bit_length()
    squares = np.pad(squares, ((0, 0), (0, width - x.shape[1])))
    while width > 1:
        width //= 2
        squares = squares[:, :width] + squares[:, width:]
    mean = squares * np.float32(1.0 / x.shape[1])
    inverse = np.float32(1) / np.sqrt(mean + np.float32(eps))
    return (h * inverse * weight.astype(np.float32)).astype(BF16)


@pytest.mark.parametrize("width", [1, 16, 144, 576])
def test_the_norm_equals_numpy_bit_for_bit_and_float64_to_one_rounding(width: int) -> None:
    rng = np.random.default_rng(width)
    x = (rng.standard_normal((7, width)) * 3).astype(BF16)
    weight = (1 + 0.2 * rng.standard_normal(width)).astype(BF16)
    out = np.asarray(norm(x, weight, 1e-5, ZERO))
    assert out.tobytes() == numpy_norm(x, weight, 1e-5).tobytes()
    exact = x.astype(np.float64)
    exact /= np.sqrt((exact**2).mean(1, keepdims=True) + 1e-5)
    exact *= weight.astype(np.float64)
    assert (np.abs(out.astype(np.float64) - exact) <= np.abs(exact) * 2**-8).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 70), st.integers(0, 1000))
def test_a_row_has_the_same_bits_alone_and_among_others(rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, 96)).astype(BF16)
    weight = rng.standard_normal(96).astype(BF16)
    place = seed % rows
    together = np.asarray(norm(x, weight, 1e-6, ZERO))[place]
    assert together.tobytes() == np.asarray(norm(x[place : place + 1], weight, 1e-6, ZERO))[0].tobytes()


def test_the_tree_adds_halves() -> None:
    x = np.array([[2.0**24, 1.0, -(2.0**24), 1.0]], np.float32)
    assert float(tree_sum(jax.numpy.asarray(x))[0]) == 2.0  # (2^24 - 2^24) + (1 + 1); left to right gives 1
