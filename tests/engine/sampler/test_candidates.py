"""A choice among what a device hands over is the choice from the logits, or none at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpp.engine.request import Sampling
from dgpp.engine.sampler import Candidates, Sampler
from dgpp.engine.sampler.normaliser import Normaliser
from tests.engine.sampler.test_sampler import rows, samplings
from tests.kernels.likeliest import likeliest_of

GREEDY = st.builds(Sampling, logprobs=st.sampled_from([0, 1, 5, 20]))


def candidates(logits: np.ndarray, sampler: Sampler, width: int = 128) -> Candidates:
    temperature = sampler.temperature
    return Candidates.of(likeliest_of(logits[None], np.array([temperature]), width), 0, temperature)


@settings(max_examples=200, deadline=None)
@given(rows(), samplings | GREEDY, st.sampled_from([1, 2, 5, 16, 128]))
def test_E_8_7_candidates_choose_what_the_logits_do(logits: np.ndarray, sampling: Sampling, width: int) -> None:
    known, asked = Sampler(sampling, [], len(logits)), Sampler(sampling, [], len(logits))
    for draws in range(3):
        expected = known.choose(logits)
        found = asked.choose_among(candidates(logits, asked, width))
        if found is None:
            assert asked.draws == (0 if sampling.temperature == 0 else draws)
            assert width < np.count_nonzero(logits > -np.inf)
            found = asked.choose(logits)
        assert found == expected
        assert asked.draws == known.draws


@pytest.mark.parametrize("size", [5, 700, 3001])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
def test_the_normaliser_has_the_bits_of_the_hosts(size: int, temperature: float) -> None:
    logits = (np.random.default_rng(size).standard_normal(size) * 6).astype(np.float32)
    sampler = Sampler(Sampling(temperature=temperature), [], size)
    found = candidates(logits, sampler)
    assert found.exact == Normaliser(logits, np.float32(temperature)).exact
    assert found.near == found.exact


def test_what_settles_a_draw_with_128_of_many_ids() -> None:
    logits = (np.random.default_rng(7).standard_normal(4000) * 5).astype(np.float32)

    def settled(**fields: object) -> bool:
        sampler = Sampler(replace(Sampling(temperature=1.0, seed=5), **fields), [], 4000)  # type: ignore[arg-type]
        return sampler.choose_among(candidates(logits, sampler)) is not None

    assert settled(top_k=20, top_p=0.95)
    assert settled(top_p=0.95)
    assert settled(min_p=0.05, logprobs=20)
    assert settled(temperature=0.0, logprobs=20)
    assert not settled(top_k=200)
    assert not settled(temperature=10.0, top_p=0.99)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_no_token_can_be_chosen_from_are_left_to_the_logits(bad: float) -> None:
    logits = np.full(300, -np.inf, np.float32)
    logits[7] = bad
    sampler = Sampler(Sampling(temperature=1.0), [], 300)
    clean = likeliest_of(np.where(np.isnan(logits), np.inf, logits)[None], np.ones(1, np.float32))
    clean.logits[np.isinf(clean.logits) & (clean.logits > 0)] = bad
    assert sampler.choose_among(Candidates.of(clean, 0, np.float32(1))) is None
    assert sampler.draws == 0


def test_settings_that_change_logits_are_not_asked() -> None:
    assert Sampler(Sampling(temperature=1.0), [], 9).takes_candidates
    assert not Sampler(Sampling(temperature=1.0, presence_penalty=0.1), [], 9).takes_candidates
    assert not Sampler(Sampling(temperature=1.0, logit_bias=((3, 1.0),)), [], 9).takes_candidates
