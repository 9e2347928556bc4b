from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpp.engine.sampler.rng import GOLDEN, mix, uniform

VECTORS = [
    (0, 0, 0.6524484863740322),
    (0, 1, 0.36818951565166946),
    (1, 0, 0.03401170130434639),
    (42, 0, 0.30315012456577295),
    (42, 1, 0.4949295270895354),
    (0xDEADBEEFCAFEF00D, 7, 0.30042749006040936),
]


@pytest.mark.parametrize(("seed", "counter", "u"), VECTORS)
def test_E_8_4_rng_vectors(seed: int, counter: int, u: float) -> None:
    assert uniform(seed, counter) == u


def test_E_8_4_mix_is_splitmix64() -> None:
    """The first outputs of the published generator from state 0."""
    outputs = [mix(n * GOLDEN & (2**64 - 1)) for n in range(3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@settings(deadline=None)
@given(st.integers(-(2**70), 2**70), st.integers(0, 2**64 - 1))
def test_E_8_4_draws_are_fractions_below_one(seed: int, counter: int) -> None:
    u = uniform(seed, counter)
    assert 0 <= u < 1
    assert (u * 2**53).is_integer()
    assert u == uniform(seed % 2**64, counter)


def test_E_8_4_draws_are_even_and_unrelated() -> None:
    draws = np.array([[uniform(seed, counter) for counter in range(100)] for seed in range(100)])
    assert np.all(np.abs(np.histogram(draws, 20, (0, 1))[0] - 500) < 100)
    assert abs(np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]) < 0.04
    assert abs(np.corrcoef(draws[:, :-1].ravel(), draws[:, 1:].ravel())[0, 1]) < 0.04
    assert len(np.unique(draws)) == draws.size
