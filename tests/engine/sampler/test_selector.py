from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpp.engine.sampler.selector import drawn, reaching, running_sum, select
from tests.engine.sampler import oracle

f32 = np.float32
OFF = {"min_p": f32(0), "top_p": f32(1)}


def halves(*powers: int) -> np.ndarray:
    """Scaled logits whose e_i are close to 2^-power."""
    return np.array([-power * math.log(2) for power in powers], f32)


def test_E_8_5_sums_are_sequential_float32() -> None:
    """1 + 2^-25 sixteen times stays 1 one by one, and grows when pairs are added first."""
    values = np.array([1] + [2.0**-25] * 16, f32)
    assert running_sum(values).tolist() == [1] * 17
    assert running_sum(values[::-1].copy())[-1] == f32(1 + 2.0**-21)
    assert running_sum(values).dtype == f32


def test_E_8_5_both_sums_are_sequential() -> None:
    """Forty e_i below 2^-25 leave the sum of 1 where it is; together they would move it by sixteen places."""
    scaled = np.array([0] + [-17.4] * 40, f32)
    assert select(scaled, **OFF, u=0.0).normaliser == 0
    assert select(scaled, min_p=f32(0), top_p=f32(1 - 2.0**-24), u=0.0).support.tolist() == [0]


@settings(deadline=None)
@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=300))
def test_E_8_5_running_sum_is_a_loop(values: list[float]) -> None:
    total, expected = f32(0), []
    for value in np.array(values, f32):
        total = total + value
        expected.append(total)
    assert running_sum(np.array(values, f32)).tolist() == [float(value) for value in expected]


@pytest.mark.parametrize(
    ("u", "chosen"), [(0.0, 0), (0.49, 0), (0.51, 1), (0.74, 1), (0.76, 2), (0.99, 2), (1 - 2**-53, 2)]
)
def test_E_8_5_draw_walks_the_masses(u: float, chosen: int) -> None:
    selection = select(halves(0, 1, 1), **OFF, u=u)
    assert selection.chosen == chosen
    assert selection.support.tolist() == [0, 1, 2]
    assert selection.normaliser == pytest.approx(math.log(2))


def test_E_8_5_draw_needs_more_than_u() -> None:
    assert drawn(np.array([0.5, 0.25, 0.25]), 0.5) == 1
    assert drawn(np.array([0.5, 0.25, 0.25]), 0.4999999) == 0
    assert drawn(np.array([0.0, 1.0]), 0.0) == 1


def test_E_8_5_rounding_leaves_the_last_with_mass() -> None:
    assert drawn(np.array([0.5, 0.25, 0.0, 0.0], f32), 0.999) == 1


def test_E_8_5_top_p_keeps_the_crossing_candidate() -> None:
    scaled = halves(0, 1, 2, 2)  # masses 1/2, 1/4, 1/8, 1/8
    kept = [len(select(scaled, min_p=f32(0), top_p=f32(p), u=0.0).support) for p in (1e-4, 0.49, 0.51, 0.74, 0.76, 1)]
    assert kept == [1, 1, 2, 2, 3, 4]
    assert reaching(np.array([0.5, 0.75, 1.0]), 0.75) == 2
    assert reaching(np.array([0.5, 0.75, 0.9]), 0.95) == 3


def test_E_8_5_top_p_one_cuts_nothing() -> None:
    """The quotients' float32 sum reaches 1 long before the end of this list."""
    scaled = np.array([0] + [-18] * 40, f32)
    assert len(select(scaled, **OFF, u=0.0).support) == 41


def test_E_8_5_min_p_is_relative_to_the_first() -> None:
    scaled = halves(0, 1, 2, 3)
    kept = [len(select(scaled, min_p=f32(p), top_p=f32(1), u=0.0).support) for p in (0, 0.12, 0.13, 0.26, 0.6, 1)]
    assert kept == [4, 4, 3, 2, 1, 1]


def test_E_8_5_min_p_one_keeps_ties() -> None:
    selection = select(np.array([2, 2, 2, 1.99], f32), min_p=f32(1), top_p=f32(1), u=0.99)
    assert (selection.support.tolist(), selection.chosen) == ([0, 1, 2], 2)


def test_E_8_5_top_p_counts_what_min_p_removed() -> None:
    """Masses 1/2, 1/4, 1/8, 1/8: min_p leaves two, whose shares of the list still sum to 3/4, below 0.8."""
    selection = select(halves(0, 1, 2, 2), min_p=f32(0.3), top_p=f32(0.7), u=0.0)
    assert selection.support.tolist() == [0, 1]
    assert selection.normaliser == pytest.approx(math.log(1.5))


def test_E_8_5_differences_beyond_float32_have_no_mass() -> None:
    largest = float(np.finfo(f32).max)
    selection = select(np.array([largest, 0, -largest], f32), **OFF, u=1 - 2**-53)
    assert (selection.chosen, selection.normaliser) == (0, largest)


@settings(deadline=None)
@given(
    st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=40),
    st.sampled_from([0.0, 0.001, 0.05, 0.5, 1.0]) | st.floats(0, 1),
    st.sampled_from([1e-6, 0.5, 0.9, 0.999, 1.0]) | st.floats(0.001, 1),
    st.floats(0, 1, exclude_max=True),
)
def test_E_8_5_is_the_lists(values: list[float], min_p: float, top_p: float, u: float) -> None:
    scaled = np.sort(np.array(values, f32))[::-1].copy()
    selection = select(scaled, min_p=f32(min_p), top_p=f32(top_p), u=u)
    expected = oracle.select(list(scaled), f32(min_p), f32(top_p), u)
    assert (selection.chosen, selection.support.tolist(), selection.normaliser) == expected
