from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.kernels.rounding import (
    HIGHEST,
    LOWEST,
    divided,
    exp_f32,
    exp_f32_numpy,
    log1p_f32,
    log1p_f32_numpy,
    log_f32,
    log_f32_numpy,
    rounded,
    sigmoid_f32,
    sigmoid_f32_numpy,
    softplus_f32,
    softplus_f32_numpy,
)
from tests.kernels.same import assert_same_bits

ZERO = np.int32(0)


def every(step: int) -> np.ndarray:
    """Each step-th float32 pattern between the limits of exp, both signs, and the limits with their neighbours."""
    positive = np.arange(0, np.float32(HIGHEST).view(np.uint32), step, dtype=np.uint32).view(np.float32)
    negative = -np.arange(0, (-np.float32(LOWEST)).view(np.uint32), step, dtype=np.uint32).view(np.float32)
    edges = np.float32([LOWEST, HIGHEST, 0.0])
    near = [np.nextafter(edges, np.float32(side * np.inf)) for side in (-1, 1)]
    return np.concatenate([positive, negative, edges, *near])


def test_exp_is_within_one_ulp_over_its_whole_range() -> None:
    x = every(1009)
    x = x[(x >= np.float32(LOWEST)) & (x <= np.float32(HIGHEST))]
    exact = np.exp(x.astype(np.float64))
    error = np.abs(exp_f32_numpy(x).astype(np.float64) - exact) / np.spacing(exact.astype(np.float32))
    assert len(x) > 1_000_000
    assert error.max() < 1.0
    assert error.mean() < 0.3


def test_exp_has_the_same_bits_in_jax_and_in_numpy() -> None:
    special = np.float32([np.inf, -np.inf, np.nan, -0.0, 1e-40, -1e-40, 1e30, -1e30, 3e38])
    x = np.concatenate([every(5003), special])
    assert_same_bits(jax.jit(exp_f32)(x, ZERO), exp_f32_numpy(x))
    # Of another shape, the compiler fuses and vectorizes otherwise.
    assert_same_bits(jax.jit(exp_f32)(x[:35].reshape(5, 7), ZERO), exp_f32_numpy(x[:35].reshape(5, 7)))


def test_exp_at_its_limits() -> None:
    x = np.float32([LOWEST, np.nextafter(np.float32(LOWEST), np.float32(-100)), -np.inf, 0.0, HIGHEST, np.inf, np.nan])
    y = exp_f32_numpy(x)
    assert y[0] >= np.finfo(np.float32).tiny  # never subnormal
    assert y[1] == y[2] == 0
    assert y[3] == 1
    assert y[4] == y[5] < np.inf
    assert np.isnan(y[6])


def test_a_rounded_product_is_not_contracted_into_the_sum_that_follows() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(10_000).astype(np.float32) for _ in range(3))
    separate = jax.jit(lambda a, b, c, zero: rounded(a * b, zero) + c)(a, b, c, ZERO)
    assert_same_bits(separate, a * b + c)


def test_divided_rounds_once_where_the_divisor_is_broadcast() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((40, 64)).astype(np.float32), rng.uniform(1, 9, 40).astype(np.float32)
    assert_same_bits(jax.jit(lambda a, b: divided(a, b[:, None]))(a, b), a / b[:, None])


def test_exp_of_a_traced_scalar() -> None:
    assert float(jax.jit(exp_f32)(jnp.float32(1), ZERO)) == exp_f32_numpy(np.float32(1))


def positive(step: int) -> np.ndarray:
    """Each step-th normal positive float32 pattern."""
    tiny, largest = (np.float32(x).view(np.uint32) for x in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))
    return np.arange(tiny, largest, step, dtype=np.uint32).view(np.float32)


def ulps(found: np.ndarray, exact: np.ndarray) -> np.ndarray:
    return np.abs(found.astype(np.float64) - exact) / np.spacing(np.abs(exact).astype(np.float32))


def test_log_is_within_one_ulp_over_its_whole_range() -> None:
    x = np.concatenate(
        [positive(1009), np.float32(1) + np.arange(-20000, 20000, dtype=np.float32) * np.float32(2**-22)]
    )
    x = x[x != 1]
    assert ulps(log_f32_numpy(x), np.log(x.astype(np.float64))).max() < 1.0
    assert log_f32_numpy(np.float32([1.0]))[0] == 0


def test_log1p_and_softplus_are_close_over_their_whole_range() -> None:
    x = positive(3001)
    assert ulps(log1p_f32_numpy(x), np.log1p(x.astype(np.float64))).max() < 3.0
    x = every(3001)
    x = x[(x > -80) & (x < 80)]
    assert ulps(softplus_f32_numpy(x), np.logaddexp(0, x.astype(np.float64))).max() < 4.0


def test_softplus_is_the_identity_above_its_threshold() -> None:
    x = np.float32([20.5, 100.0, 3e38, np.inf, 20.0, -200.0])
    y = softplus_f32_numpy(x)
    assert_same_bits(y[:4], x[:4])
    assert 20.0 <= y[4] < 20.000004
    assert y[5] == 0


def test_sigmoid_is_close_and_never_subnormal() -> None:
    x = every(3001)
    x = x[np.abs(x) < 87]
    exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert ulps(sigmoid_f32_numpy(x), exact).max() < 2.5
    assert sigmoid_f32_numpy(np.float32([-87.1, -1e30, -np.inf])).tolist() == [0, 0, 0]
    assert sigmoid_f32_numpy(np.float32([100, np.inf])).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("jax_form", "numpy_form"),
    [
        (log_f32, log_f32_numpy),
        (log1p_f32, log1p_f32_numpy),
        (softplus_f32, softplus_f32_numpy),
        (sigmoid_f32, sigmoid_f32_numpy),
    ],
)
def test_both_forms_have_the_same_bits(jax_form: Callable[..., Any], numpy_form: Callable[..., Any]) -> None:
    special = np.float32([np.inf, -np.inf, np.nan, -0.0, 0.0, 1e30, 3e38, 1.0])
    x = np.concatenate([every(5003), positive(5003), special])
    if jax_form is log1p_f32:
        x = x[~(x < 0)]
    assert_same_bits(jax.jit(jax_form)(x, ZERO), numpy_form(x))
    assert_same_bits(jax.jit(jax_form)(x[:35].reshape(5, 7), ZERO), numpy_form(x[:35].reshape(5, 7)))
