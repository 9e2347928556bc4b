from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dgpp.engine.request import Sampling, TokenLogprobs
from dgpp.engine.sampler import Choice, LogitsError, Sampler, decision
from dgpp.engine.sampler.rng import uniform
from tests.engine.sampler import oracle

ROW = np.array([1.0, 3.0, -np.inf, 2.0, 3.0, -1.0, 0.5, 0.25], np.float32)


def choices(sampling: Sampling, logits: np.ndarray, count: int, **settings: Any) -> list[Choice]:
    sampler = Sampler(sampling, [], len(logits), **settings)
    return [sampler.choose(logits) for _ in range(count)]


@st.composite
def rows(draw: st.DrawFn) -> np.ndarray:
    """Logits with ties, with absent ids, flat or peaked; some id is present."""
    size = draw(st.integers(1, 90))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    logits = rng.standard_normal(size) * draw(st.sampled_from([0.0, 0.3, 2.0, 20.0]))
    if draw(st.booleans()):
        logits = np.round(logits)
    logits[rng.random(size) < draw(st.sampled_from([0.0, 0.0, 0.5, 0.98]))] = -np.inf
    logits[draw(st.integers(0, size - 1))] = draw(st.sampled_from([0.0, 1.0, 12.0]))
    return logits.astype(np.float32)


samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.01, 0.1, 0.7, 1.0, 2.0, 10.0]),
    top_p=st.sampled_from([1e-4, 0.3, 0.9, 0.99999, 1.0, 1.0]) | st.floats(0.01, 1),
    top_k=st.sampled_from([0, 0, 1, 2, 20, 50, 1000]),
    min_p=st.sampled_from([0.0, 0.0, 0.05, 0.5, 1.0]) | st.floats(0, 1),
    seed=st.integers(0, 2**64 - 1),
    logprobs=st.sampled_from([None, 0, 3, 20]),
)


@settings(max_examples=150, deadline=None)
@given(rows(), samplings)
@example(np.zeros(90, np.float32), Sampling(temperature=1.0, seed=3, logprobs=20))
@example(ROW, Sampling(temperature=1.0, top_p=1.0 - 2.0**-24, logprobs=3))
@example(np.zeros(10, np.float32), Sampling(temperature=0.01, top_p=0.3))
def test_E_8_7_result_is_the_oracles_at_every_width(logits: np.ndarray, sampling: Sampling) -> None:
    token, kept, listed = oracle.draw(logits, sampling, uniform(sampling.seed, 0))
    for widths in ((1,), (2, 5), (16, 64), (128, 1024), ()):
        (choice,) = choices(sampling, logits, 1, widths=widths)
        assert choice.token == token
        if sampling.logprobs is None:
            assert choice.logprobs is None
        else:
            top = tuple((i, float(value)) for i, value in listed[: sampling.logprobs])
            assert choice.logprobs == TokenLogprobs(float(kept[token]), top)


@settings(max_examples=120, deadline=None)
@given(rows(), samplings)
def test_E_8_1_filters_in_float64(logits: np.ndarray, sampling: Sampling) -> None:
    """An independent computation of the kept set, wherever no float32 rounding can decide it, and of its masses."""
    x = logits.astype(np.float64) / float(np.float32(sampling.temperature))
    order = np.lexsort((np.arange(len(x)), -logits))
    order = order[logits[order] > -np.inf]
    mass = np.exp(x[order] - x.max())
    if sampling.top_k:
        order, mass = order[: sampling.top_k], mass[: sampling.top_k]
        share = mass / mass.sum()
        marginal = bool(sampling.min_p) and bool(np.any(np.abs(mass[1:] - sampling.min_p) < 1e-4))
    else:
        marginal = bool(sampling.min_p) and bool(np.any(np.abs(mass - sampling.min_p)[1:] < 1e-4))
        if sampling.min_p:
            order, mass = order[mass >= sampling.min_p], mass[mass >= sampling.min_p]
        share = mass / mass.sum()
    before = np.cumsum(share) - share
    marginal |= sampling.top_p < 1 and bool(np.any(np.abs(before - sampling.top_p) < 1e-4))
    keep = (mass >= sampling.min_p) & ((before < sampling.top_p) | (sampling.top_p == 1))
    (choice,) = choices(replace(sampling, logprobs=100), logits, 1)
    assert choice.logprobs is not None
    if marginal:
        return
    assert [token for token, _ in choice.logprobs.top] == order[keep].tolist()
    # From the exponents, since the mass of an id far below the best underflows even in float64.
    expected = x[order[keep]] - x.max() - np.log(mass[keep].sum())
    assert [value for _, value in choice.logprobs.top] == pytest.approx(expected.tolist(), abs=2e-3)
    assert sum(math.exp(value) for _, value in choice.logprobs.top) == pytest.approx(1, abs=1e-3)


@settings(max_examples=40, deadline=None)
@given(rows(), samplings)
def test_E_8_7_the_cheap_normaliser_decides_nothing(logits: np.ndarray, sampling: Sampling) -> None:
    cheap = choices(sampling, logits, 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decision, "SLACK", math.inf)
        assert choices(sampling, logits, 8) == cheap


def test_E_8_7_a_flat_vocabulary_goes_through_every_width() -> None:
    """The draw lands beyond 128, 1024 and 8192 candidates; a full sort agrees."""
    rng = np.random.default_rng(5)
    logits = (rng.standard_normal(20000) * 0.5).astype(np.float32)
    sampling = Sampling(temperature=1.0, seed=11, logprobs=20)
    assert choices(sampling, logits, 12) == choices(sampling, logits, 12, widths=())
    order = np.lexsort((np.arange(20000), -logits))
    ranks = [int(np.flatnonzero(order == choice.token)[0]) for choice in choices(sampling, logits, 12)]
    assert min(ranks) < 8192 < max(ranks)


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(temperature=1.0), [0.25, 0.125, 0.5, 0.125]),
        (Sampling(temperature=0.5), [2 / 11, 0.5 / 11, 8 / 11, 0.5 / 11]),
        (Sampling(temperature=1.0, top_k=2), [1 / 3, 0, 2 / 3, 0]),
        (Sampling(temperature=1.0, top_p=0.6), [1 / 3, 0, 2 / 3, 0]),
        (Sampling(temperature=1.0, top_p=0.8), [2 / 7, 1 / 7, 4 / 7, 0]),
        (Sampling(temperature=1.0, min_p=0.4), [1 / 3, 0, 2 / 3, 0]),
        (Sampling(temperature=1.0, logit_bias=((2, -100.0),)), [0.5, 0.25, 0, 0.25]),
    ],
)
def test_E_8_distribution(sampling: Sampling, expected: list[float]) -> None:
    """1000 draws of masses 1/4, 1/8, 1/2, 1/8: every count within 4.5 standard deviations."""
    logits = np.log(np.array([2, 1, 4, 1], np.float32))
    counts = np.bincount([choice.token for choice in choices(replace(sampling, seed=123), logits, 1000)], minlength=4)
    for count, p in zip(counts.tolist(), expected, strict=True):
        assert abs(count - 1000 * p) <= 4.5 * math.sqrt(1000 * p * (1 - p))


def test_sample_a_draw_is_a_function_of_seed_counter_and_logits() -> None:
    """Whatever was chosen and accepted before."""
    sampling = Sampling(temperature=1.5, seed=77)
    straight = [choice.token for choice in choices(sampling, ROW, 20)]
    sampler = Sampler(sampling, [1, 2, 3], len(ROW))
    for index, token in enumerate(straight):
        assert sampler.draws == index
        assert sampler.choose(ROW).token == token
        sampler.accept(0)
    assert len(set(straight)) > 1
    assert straight != [choice.token for choice in choices(replace(sampling, seed=78), ROW, 20)]


def test_E_8_4_one_draw_a_choice_even_of_one_candidate() -> None:
    sampler = Sampler(Sampling(temperature=1.0, top_k=1, seed=5), [], len(ROW))
    assert [sampler.choose(ROW).token for _ in range(3)] == [1, 1, 1]
    assert sampler.draws == 3


@settings(deadline=None)
@given(rows())
def test_E_8_3_greedy_is_the_argmax(logits: np.ndarray) -> None:
    for sampling in (Sampling(), Sampling(logprobs=2), Sampling(temperature=1e-6, top_k=4)):
        sampler = Sampler(sampling, [], len(logits))
        assert sampler.choose(logits).token == int(np.argmax(logits))
        assert sampler.draws == 0


def test_E_8_3_greedy_ties_go_to_the_lower_id() -> None:
    assert [choice.token for choice in choices(Sampling(), ROW, 2)] == [1, 1]


@settings(max_examples=30, deadline=None)
@given(rows())
def test_E_8_9_greedy_logprobs_are_those_at_temperature_one(logits: np.ndarray) -> None:
    (choice,) = choices(Sampling(top_p=0.1, top_k=1, logprobs=5), logits, 1)
    total = oracle.normaliser(logits.tolist())
    order = sorted(np.flatnonzero(logits > -np.inf).tolist(), key=lambda i: (-logits[i], i))
    expected = [(i, float(np.float32(float(logits[i]) - total))) for i in order]
    assert choice.logprobs == TokenLogprobs(expected[0][1], tuple(expected[:5]))
    (bare,) = choices(Sampling(logprobs=0), logits, 1)
    assert bare.logprobs == TokenLogprobs(expected[0][1], ())


def test_E_8_9_greedy_logprobs_see_penalties_and_masks() -> None:
    """Of two ids left at 0 each has probability one half."""
    logits = np.array([5, 0, 3, 9], np.float32)
    sampler = Sampler(Sampling(logit_bias=((0, -5.0),), logprobs=4), [], 4)
    choice = sampler.choose(logits, np.array([True, True, False, False]))
    half = float(np.float32(-math.log(2)))
    assert choice == Choice(0, TokenLogprobs(half, ((0, half), (1, half))))


def test_E_8_9_sampled_logprobs_are_those_of_the_filtered_distribution() -> None:
    for choice in choices(Sampling(temperature=0.5, top_k=3, logprobs=20), ROW, 10):
        assert choice.logprobs is not None
        assert [token for token, _ in choice.logprobs.top] == [1, 4, 3]
        assert dict(choice.logprobs.top)[choice.token] == choice.logprobs.logprob
        assert sum(math.exp(value) for _, value in choice.logprobs.top) == pytest.approx(1, abs=1e-6)


def test_E_8_1_penalties_follow_accepted_tokens() -> None:
    """Each of the two best ids is pushed below the other in turn."""
    sampler = Sampler(Sampling(frequency_penalty=1.0), [], 3)
    logits, tokens = np.array([0.6, 0.0, -9.0], np.float32), []
    for _ in range(6):
        tokens.append(sampler.choose(logits).token)
        sampler.accept(tokens[-1])
    assert tokens == [0, 1, 0, 1, 0, 1]
    assert Sampler(Sampling(presence_penalty=1.0), [0], 3).choose(logits).token == 1


def test_E_8_1_masked_ids_are_absent() -> None:
    allowed = np.array([True, False, True, True, False, True, True, True])
    sampler = Sampler(Sampling(temperature=10.0, logprobs=20), [], len(ROW))
    for _ in range(30):
        choice = sampler.choose(ROW, allowed)
        assert choice.logprobs is not None
        assert [token for token, _ in choice.logprobs.top] == [3, 0, 6, 7, 5]
        assert choice.token in {3, 0, 6, 7, 5}


@pytest.mark.parametrize(
    "changed", [{"temperature": 1e-5}, {"top_p": 1e-4}, {"min_p": 1.0}, {"top_p": 1e-4, "min_p": 1.0, "top_k": 1}]
)
@pytest.mark.parametrize("peak", [0.0, 30.0, 3e38])
def test_P2_one_candidate_survives_every_filter(changed: dict[str, Any], peak: float) -> None:
    logits = np.array([-3e38, peak - 1, peak, -np.inf, peak / 2 - 1], np.float32)
    best = int(np.argmax(logits))
    (choice,) = choices(Sampling(**{"temperature": 1.0, **changed, "logprobs": 5}), logits, 1)
    assert choice.logprobs is not None
    assert not math.isnan(choice.logprobs.logprob)
    if peak < 1e38:  # above, the two largest are equal
        assert choice == Choice(best, TokenLogprobs(0.0, choice.logprobs.top))


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0), Sampling(logprobs=2)])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, np.nan, 1, np.nan], "2 of 4 ids are NaN; the first is id 1"),
        ([0, 1, np.inf, 1], "1 of 4 ids are \\+inf; the first is id 2"),
        ([-np.inf] * 4, "every one of the 4 logits is -inf"),
    ],
)
def test_logits_without_a_token_are_an_error(sampling: Sampling, values: list[float], message: str) -> None:
    sampler = Sampler(sampling, [], 4)
    with pytest.raises(LogitsError, match=message):
        sampler.choose(np.array(values, np.float32))
    assert sampler.draws == 0


@pytest.mark.parametrize("logits", [np.zeros(5, np.float32), np.zeros((1, 4), np.float32), np.zeros(4)])
def test_logits_of_another_shape_or_type_are_refused(logits: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"logits must be float32 \[4\]"):
        Sampler(Sampling(), [], 4).choose(logits)


@pytest.mark.parametrize("prompt", [[4], [-1, 2]])
def test_prompt_ids_outside_the_vocabulary_are_refused(prompt: list[int]) -> None:
    with pytest.raises(ValueError, match="prompt has ids outside the vocabulary of 4"):
        Sampler(Sampling(), prompt, 4)


def test_E_8_2_a_sampler_validates() -> None:
    with pytest.raises(ValueError, match="top_p"):
        Sampler(Sampling(top_p=0.0), [], 4)
