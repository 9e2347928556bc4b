from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpp.engine.sampler import normaliser as module
from dgpp.engine.sampler.normaliser import Normaliser, halved, normaliser, slice_normaliser
from tests.engine.sampler import oracle


def test_E_8_6_halving_order() -> None:
    """t0 meets t4 (t2 among four) first, and t1 meets t5 (t3): neighbours or a loop would lose the first 2^-53."""
    tiny = 2.0**-53
    assert halved(np.array([1, tiny, 0, 0, -1, tiny, 0, 0])) == 2 * tiny
    assert halved(np.array([1, tiny, -1, tiny])) == 2 * tiny
    assert halved(np.array([1, -1, tiny, tiny])) == tiny
    assert halved(np.array([5.0])) == 5


def test_E_8_6_hand_computed() -> None:
    """Two equal ids in slices of their own: log 2; the slices of 10 ids are 2, 3, 2 and 3 wide."""
    assert normaliser(np.zeros(2, np.float32)) == oracle.log(2.0)
    values = np.full(10, -np.inf, np.float32)
    values[[1, 2, 4]] = 7
    assert normaliser(values) == (7 + oracle.log(2.0)) + oracle.log(1 + oracle.exp(7 - (7 + oracle.log(2.0))))


def test_E_8_6_slices_fold_in_rank_order() -> None:
    """e^-36.74 is a little below 2^-53: lost twice after a 1, kept when two of them come before it."""
    after = np.array([0, -36.74, -36.74, -np.inf], np.float32)
    assert normaliser(after) == 0
    assert normaliser(after[::-1]) == 2.0**-52


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 255, 256, 257, 1023, 1024, 1025, 2100])
@pytest.mark.parametrize("masked", [0.0, 0.7])
def test_E_8_6_is_the_lists(size: int, masked: float) -> None:
    rng = np.random.default_rng(size)
    values = (rng.standard_normal(size) * 5).astype(np.float32)
    values[rng.random(size) < masked] = -np.inf
    values[size // 2] = 1.25
    assert normaliser(values) == oracle.normaliser(values.tolist())
    assert slice_normaliser(values) == oracle.slice_normaliser(values.tolist())


def test_E_8_6_empty_and_absent_slices() -> None:
    assert slice_normaliser(np.zeros(0, np.float32)) == -math.inf
    assert slice_normaliser(np.full(300, -np.inf, np.float32)) == -math.inf
    values = np.full(4000, -np.inf, np.float32)
    values[3999] = -3.5
    assert normaliser(values) == -3.5


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 2000), st.integers(0, 2**32), st.sampled_from([0.01, 1.0, 30.0]), st.floats(-100, 100))
def test_E_8_6_value_and_its_cheap_neighbour(size: int, seed: int, spread: float, centre: float) -> None:
    values = (np.random.default_rng(seed).standard_normal(size) * spread + centre).astype(np.float32)
    both = Normaliser(values, np.float32(1))
    exact = math.fsum(math.exp(float(v) - float(values.max())) for v in values)
    assert both.exact == pytest.approx(float(values.max()) + math.log(exact), abs=1e-12)
    assert both.near == pytest.approx(both.exact, abs=1e-12)


def test_E_8_6_temperature_divides_in_float32() -> None:
    values = np.random.default_rng(0).standard_normal(500).astype(np.float32)
    temperature = np.float32(0.7)
    assert Normaliser(values, temperature).exact == normaliser(values / temperature)


def test_the_exact_normaliser_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    monkeypatch.setattr(module, "normaliser", lambda scaled: calls.append(len(scaled)) or 0.0)
    both = Normaliser(np.zeros(9, np.float32), np.float32(1))
    assert both.near == pytest.approx(math.log(9))
    assert calls == []
    assert (both.exact, both.exact, calls) == (0, 0, [9])
