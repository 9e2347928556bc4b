from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.kernels.rounding import HIGHEST, LOWEST, divided, exp_f32, exp_f32_numpy, rounded
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
