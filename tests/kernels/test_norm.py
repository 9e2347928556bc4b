from __future__ import annotations

import hypothesis.strategies as st
import jax
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings

from dgpp.kernels.norm.reference import gated_rms_norm, group_rms_norm_1p, l2_norm, rms_norm, rms_norm_1p, tree_sum
from dgpp.kernels.rounding import sigmoid_f32_numpy

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


def test_trap_the_stored_weight_of_a_1p_norm_is_added_to_one() -> None:
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((3, 2, 96)).astype(BF16), (0.2 * rng.standard_normal(96)).astype(BF16)
    out = np.asarray(jax.jit(rms_norm_1p, static_argnums=2)(x, weight, 1e-6, ZERO))
    exact = x.astype(np.float64)
    exact = exact / np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-6) * (1 + weight.astype(np.float64))
    assert (np.abs(out.astype(np.float64) - exact) <= np.abs(exact) * 2**-8).all()
    assert np.abs(np.asarray(norm(x[0], weight, 1e-6, ZERO)).astype(np.float64) - exact[0]).max() > 1
    # 1 + w is made in float32: in bf16 1 + 2^-8 would be 1, and 255/256 of it is below 1 - 2^-9.
    values = np.full((1, 64), 1, BF16)
    values[0, ::2] = 255 / 256
    out = np.asarray(rms_norm_1p(values, np.full(64, 2**-8, BF16), 0.0, ZERO)).astype(np.float64)
    mean = np.sqrt((values.astype(np.float64) ** 2).mean())
    assert out[0, 1] == np.float64(BF16((1 + 2**-8) / mean)) != np.float64(BF16(1 / mean))


def test_trap_a_grouped_norm_has_its_own_mean_and_weights_per_group() -> None:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal((5, 4, 24)) * [[[0.1], [1], [10], [100]]]).astype(BF16)
    weight = (0.2 * rng.standard_normal(96)).astype(BF16)
    out = np.asarray(group_rms_norm_1p(x.reshape(5, 96), weight, 4, 1e-6, ZERO)).reshape(5, 4, 24)
    for group in range(4):
        one = np.asarray(rms_norm_1p(x[:, group], weight[24 * group : 24 * (group + 1)], 1e-6, ZERO))
        assert (out[:, group] == one).all()
    whole = np.asarray(rms_norm_1p(x.reshape(5, 96), weight, 1e-6, ZERO)).reshape(5, 4, 24)
    assert (np.abs(whole.astype(np.float32) - out.astype(np.float32)) > 0.1).any()


@pytest.mark.parametrize("act", ["sigmoid", "swish"])
def test_trap_output_gate_kind(act: str) -> None:
    rng = np.random.default_rng(2)
    o, z = (rng.standard_normal((6, 3, 32)).astype(BF16) for _ in range(2))
    weight = (1 + 0.1 * rng.standard_normal(32)).astype(BF16)
    out = np.asarray(jax.jit(gated_rms_norm, static_argnums=(3, 4))(o, z, weight, 1e-6, act, ZERO))
    h, gate = o.astype(np.float64), z.astype(np.float64)
    opened = 1 / (1 + np.exp(-gate)) * (gate if act == "swish" else 1)
    exact = h / np.sqrt((h * h).mean(-1, keepdims=True) + 1e-6) * weight.astype(np.float64) * opened
    assert (np.abs(out.astype(np.float64) - exact) <= np.abs(exact) * 3 * 2**-8).all()


def test_the_gated_norm_rounds_after_the_norm_the_weight_and_the_gate() -> None:
    rng = np.random.default_rng(3)
    o, z = (rng.standard_normal((40, 32)).astype(BF16) for _ in range(2))
    weight = (1 + 0.1 * rng.standard_normal(32)).astype(BF16)
    normed = numpy_norm(o, np.ones(32, BF16), 1e-6)
    weighted = (normed.astype(np.float32) * weight.astype(np.float32)).astype(BF16)
    expected = (weighted.astype(np.float32) * sigmoid_f32_numpy(z.astype(np.float32))).astype(BF16)
    out = np.asarray(jax.jit(gated_rms_norm, static_argnums=(3, 4))(o, z, weight, 1e-6, "sigmoid", ZERO))
    assert out.tobytes() == expected.tobytes()


def test_an_unknown_gate_is_refused() -> None:
    with pytest.raises(ValueError, match="'sigmoid' or 'swish', not 'silu'"):
        gated_rms_norm(np.ones((1, 4), BF16), np.ones((1, 4), BF16), np.ones(4, BF16), 1e-6, "silu", ZERO)


def test_trap_qk_l2norm_epsilon_is_added_to_the_sum() -> None:
    x = np.zeros((2, 128), BF16)
    x[0] = 1e-4
    out = np.asarray(jax.jit(l2_norm)(x, ZERO))
    assert out.dtype == np.float32
    squares = np.float64(x[0, 0]) ** 2 * 128
    assert np.allclose(out[0], np.float64(x[0, 0]) / np.sqrt(squares + 1e-6), rtol=1e-6)
    assert (out[1] == 0).all()
    large = np.random.default_rng(4).standard_normal((5, 3, 128)).astype(BF16)
    assert np.allclose(np.linalg.norm(np.asarray(l2_norm(large, ZERO)), axis=-1), 1, rtol=1e-6)
