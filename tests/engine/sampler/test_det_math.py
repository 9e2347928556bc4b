from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpp.engine.sampler import det_math
from dgpp.engine.sampler.det_math import exp, exp_array, exp_f, log, log_f
from tests.engine.sampler import oracle


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize(("x", "bits"), [(-0.5, "0x1.368b2fc6f960ap-1"), (-10.0, "0x1.7cd79b5647c9bp-15")])
def test_E_8_10_exp_vectors(x: float, bits: str) -> None:
    assert exp(x).hex() == bits
    assert exp_array(np.array([x]))[0].hex() == bits


@pytest.mark.parametrize(("x", "bits"), [(10.0, "0x1.26bb1bbb55515p+1"), (0.001, "-0x1.ba18a998fffa0p+2")])
def test_E_8_10_log_vectors(x: float, bits: str) -> None:
    assert log(x).hex() == bits
    assert log_f(np.float32(2)) == np.float32(0.6931472)


def test_E_8_10_exact_values_and_cuts() -> None:
    x = np.array([0.0, -0.0, 709.79, 709.78, -745.14, -745.13, math.inf, -math.inf, 1e300, -1e300])
    result = exp_array(x)
    assert result[[0, 1]].tolist() == [1, 1]
    assert result[[2, 6, 8]].tolist() == [math.inf] * 3
    assert result[[4, 7, 9]].tolist() == [0, 0, 0]
    assert 1.79e308 < result[3] < math.inf
    assert result[5] == 5e-324
    assert same_bits(result, np.array([exp(v) for v in x.tolist()]))
    assert math.isnan(exp(math.nan))
    assert log(1.0) == 0


@pytest.mark.parametrize("x", [0.0, -1.0, math.inf, math.nan])
def test_E_8_10_log_refuses(x: float) -> None:
    with pytest.raises(ValueError, match="log needs a finite positive number"):
        log(x)


def test_E_8_10_reduction_products_are_exact() -> None:
    for constant in (det_math.LN2_HIGH, det_math._LOW_HEAD, det_math._LOW_TAIL):
        for k in range(-1075, 1025):
            assert Fraction(k * constant) == k * Fraction(constant)
    assert Fraction(det_math._LOW_HEAD) + Fraction(det_math._LOW_TAIL) == Fraction(det_math.LN2_LOW)


def test_E_8_10_reduction_rounds_twice() -> None:
    """First x - k * LN2_HIGH, then what is left less k * LN2_LOW; near a multiple of ln 2 the latter has many ties."""
    x = np.concatenate(list(families().values()))
    x = x[(x > det_math.LOWEST) & (x < det_math.HIGHEST)][::2]
    k = (x * det_math.INVERSE_LN2 + det_math.SHIFT) - det_math.SHIFT
    high, low = Fraction(det_math.LN2_HIGH), Fraction(det_math.LN2_LOW)
    for value, n, r in zip(x.tolist(), k.astype(int).tolist(), det_math._reduce(x, k).tolist(), strict=True):
        assert r == float(Fraction(float(Fraction(value) - n * high)) - n * low)


@settings(deadline=None)
@given(st.floats(-746, 710) | st.floats(-1, 1) | st.floats(-30, 0, width=32))
def test_E_8_10_exp_is_the_rational_one(x: float) -> None:
    assert exp(x).hex() == oracle.exp(x).hex()
    assert exp_array(np.array([x]))[0].hex() == oracle.exp(x).hex()


@settings(deadline=None)
@given(st.floats(0, exclude_min=True, allow_infinity=False) | st.floats(0.5, 2) | st.floats(1, 1e6))
def test_E_8_10_log_is_the_rational_one(x: float) -> None:
    assert log(x).hex() == oracle.log(x).hex()


def families() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(8)
    halves = (np.arange(-2149, 2048) * (0.5 * math.log(2))).tolist()
    return {
        "all": rng.uniform(-745.13, 709.78, 6000),
        "logits": (rng.standard_normal(6000) * 4 - 12).astype(np.float32).astype(np.float64),
        "subnormal results": rng.uniform(-745.13, -708, 3000),
        "near zero": rng.standard_normal(3000) * 2.0 ** rng.integers(-1070, 0, 3000),
        "few bits": rng.integers(-4096, 4096, 3000) * 2.0 ** rng.integers(-60, -3, 3000),
        "near k": np.round(rng.uniform(-1074, 1023, 6000)) * math.log(2) + 2.0 ** rng.uniform(-40, -10, 6000),
        "between two k": np.array([x + d for x in halves for d in (0, math.ulp(x), -math.ulp(x))]),
    }


@pytest.mark.parametrize("family", families())
def test_E_8_10_array_has_the_bits_of_the_scalar(family: str) -> None:
    x = families()[family]
    assert same_bits(exp_array(x), np.array([exp(v) for v in x.tolist()]))


def test_E_8_10_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(1).uniform(-50, 0, 1000)
    whole = exp_array(x)
    monkeypatch.setattr(det_math, "BLOCK", 7)
    assert same_bits(exp_array(x), whole)


def test_E_8_10_doubtful_roundings_go_to_the_scalar(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 + 2^-53 is a tie, and its neighbours are nearer to one than the bound of the array path."""
    asked: list[float] = []

    def counted(value: float) -> float:
        asked.append(value)
        return exp(value)

    ties = [2.0**-53, 2.0**-53 * (1 + 2.0**-52), 2.0**-53 * (1 - 2.0**-53), -(2.0**-54)]
    expected = [1.0, 1 + 2.0**-52, 1.0, 1.0]
    assert [exp(value) for value in ties] == expected
    monkeypatch.setattr(det_math, "exp", counted)
    assert exp_array(np.array([*ties, -1.0, *ties])).tolist() == [*expected, exp(-1.0), *expected]
    assert asked == sorted(ties)  # each value once, and -1 never


def test_E_8_10_most_roundings_are_not_doubtful() -> None:
    x = -np.random.default_rng(2).exponential(10, 20000)
    r = det_math._reduce(x, np.rint(x * det_math.INVERSE_LN2))
    assert int(det_math._polynomial(r)[1].sum()) < 20


def test_E_8_10_errors_in_ulp() -> None:
    rng = np.random.default_rng(3)
    with localcontext() as context:
        context.prec = 40
        for x in rng.uniform(-700, 700, 300).tolist():
            true = Decimal(x).exp()
            assert abs(Decimal(exp(x)) - true) < Decimal(math.ulp(float(true)))
        for x in (2.0 ** rng.uniform(-1000, 1000, 300)).tolist():
            true = Decimal(x).ln()
            assert abs(Decimal(log(x)) - true) < 2 * Decimal(math.ulp(float(true)))


def test_E_8_10_exp_f_rounds_the_float64_once() -> None:
    x = np.concatenate([np.linspace(-110, 90, 3001), [-np.inf, 0]]).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = [np.float32(exp(value)) for value in x.tolist()]
    assert same_bits(exp_f(x), np.array(expected, np.float32))
    assert log_f(np.float32(0.05)) == np.float32(log(float(np.float32(0.05))))
