from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpp.engine.request import Sampling
from dgpp.engine.sampler.penalties import History, Penalties
from tests.engine.sampler.oracle import nearest_f32


def logits(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_E_8_1_repetition_divides_positive_and_multiplies_negative() -> None:
    penalties = Penalties(Sampling(repetition_penalty=2.0), [0, 1, 1])
    assert penalties.apply(logits(3, -3, 3, -3)).tolist() == [1.5, -6, 3, -3]


def test_E_8_1_counts_include_the_prompt() -> None:
    penalties = Penalties(Sampling(frequency_penalty=0.5, presence_penalty=0.25), [3, 1, 3])
    penalties.accept(3)
    penalties.accept(0)
    assert penalties.apply(logits(0, 0, 0, 0)).tolist() == [-0.75, -0.75, 0, -1.75]


def test_E_8_1_order_of_the_steps() -> None:
    """8/2 - 3*1 - 0.5 + 10 = 10.5 for the id that occurred, -7*2 - 1 - 0.5 = -15.5 for a negative one."""
    sampling = Sampling(
        repetition_penalty=2.0, frequency_penalty=1.0, presence_penalty=0.5, logit_bias=((0, 10.0), (2, 100.0))
    )
    allowed = np.array([True, True, False, True])
    result = Penalties(sampling, [0, 0, 0, 1]).apply(logits(8, -7, 5, 6), allowed)
    assert result.tolist() == [10.5, -15.5, -np.inf, 6]


def test_E_8_1_frequency_is_fused() -> None:
    """0.1 * 3 is rounded to float32 by a separate product; the fused one keeps what that drops."""
    penalties = Penalties(Sampling(frequency_penalty=0.1), [0, 0, 0])
    value = np.float32(0.3)
    fused = nearest_f32(Fraction(float(value)) - 3 * Fraction(float(np.float32(0.1))))
    assert penalties.apply(value[None])[0] == fused
    assert fused != value - np.float32(0.1) * np.float32(3)


def test_E_8_1_nothing_to_do_changes_and_copies_nothing() -> None:
    values = logits(1, 2, 3)
    assert Penalties(Sampling(temperature=1.0, top_k=2), [0]).apply(values) is values


def test_E_8_1_the_callers_logits_stay() -> None:
    values = logits(1, 2, 3)
    sampling = Sampling(repetition_penalty=1.5, logit_bias=((1, 1.0),))
    Penalties(sampling, [0]).apply(values, np.array([True, False, True]))
    assert values.tolist() == [1, 2, 3]


def test_E_8_1_minus_infinity_stays_and_overflow_is_finite() -> None:
    largest = float(np.finfo(np.float32).max)
    sampling = Sampling(
        repetition_penalty=1e-30, frequency_penalty=-1e38, presence_penalty=-1e38, logit_bias=((1, 3e38), (3, 3e38))
    )
    result = Penalties(sampling, [0, 1, 2] * 9).apply(logits(1e30, 3, -np.inf, 3e38, -np.inf))
    assert result.tolist() == [largest, largest, -np.inf, largest, -np.inf]


@settings(deadline=None)
@given(st.lists(st.integers(0, 400), max_size=200), st.lists(st.integers(0, 400), max_size=200))
def test_history_is_a_counter(prompt: list[int], generated: list[int]) -> None:
    history = History(prompt)
    for token in generated:
        history.add(token)
    counts = dict(zip(history.ids.tolist(), history.counts.tolist(), strict=True))
    assert len(counts) == len(history.ids)
    assert counts == Counter(prompt + generated)


@pytest.mark.parametrize("prompt", [[], [5]])
def test_penalties_of_generated_tokens_only_start_with_them(prompt: list[int]) -> None:
    penalties = Penalties(Sampling(presence_penalty=1.0), prompt)
    assert penalties.apply(np.zeros(8, np.float32)).sum() == -len(prompt)
    penalties.accept(2)
    assert penalties.apply(np.zeros(8, np.float32))[2] == -1
