from __future__ import annotations

import numpy as np
import pytest

from dgpp.engine.request import Sampling
from dgpp.engine.sampler import Sampler, decision
from dgpp.engine.sampler.decision import Filters, decide
from dgpp.engine.sampler.det_math import exp_array
from dgpp.engine.sampler.normaliser import Normaliser
from dgpp.engine.sampler.selector import running_sum

COUNT = 160
SCALED = -(np.arange(COUNT, dtype=np.float32) / 50)
NORMALISER = Normaliser(SCALED, np.float32(1))
SUMS = running_sum(exp_array(SCALED.astype(np.float64) - NORMALISER.exact))


def held(width: int, u: float = 0.3, logprobs: int | None = None, **changed: float) -> decision.Selection | None:
    filters = Filters.of(Sampling(**{"temperature": 1.0, **changed}))
    return decide(SCALED[:width], len(SCALED), filters, NORMALISER, u, logprobs)


def needed(**arguments: float) -> int:
    """The smallest width that settles the draw; every larger one must settle it as well."""
    settled = [held(width, **arguments) is not None for width in range(1, len(SCALED) + 1)]
    first = settled.index(True)
    assert all(settled[first:])
    return first + 1


def test_E_8_7_top_k_needs_its_candidates() -> None:
    assert [needed(top_k=k) for k in (1, 7, COUNT, 1000)] == [1, 7, COUNT, COUNT]


def test_E_8_7_min_p_needs_the_first_below_the_bound() -> None:
    """ln 0.5 is -0.693, between candidates 34 (-0.68) and 35 (-0.70)."""
    assert needed(min_p=0.5) == 36
    assert needed(min_p=1.0) == 2
    assert needed(min_p=1e-9) == COUNT


def test_E_8_7_top_p_needs_the_crossing_candidate() -> None:
    for top_p in (0.001, 0.5, 0.95, 0.999999):
        count = int(np.argmax(np.float32(top_p) <= SUMS)) + 1
        assert needed(top_p=top_p) == count
        selection = held(COUNT, top_p=top_p)
        assert selection is not None
        assert selection.support.tolist() == list(range(count))


def test_E_8_7_pure_temperature_needs_the_drawn_candidate_and_the_listed() -> None:
    for u in (0.0, 0.3, 0.99, 1 - 2.0**-53):
        drawn = int(np.argmax(u < SUMS)) if (u < SUMS).any() else len(SUMS) - 1
        assert needed(u=u) == drawn + 1
        selection = held(COUNT, u=u)
        assert selection is not None
        assert selection.chosen == drawn
        assert needed(u=u, logprobs=17) == max(drawn + 1, 17)
        assert needed(u=u, logprobs=1000) == COUNT


@pytest.mark.parametrize("place", [0, 1, 57, 120])
def test_E_8_7_marks_on_a_running_sum_are_decided_exactly(place: int) -> None:
    """One place in the last bit of u moves the draw, which no approximate normaliser can tell."""
    on, below = float(SUMS[place]), float(np.nextafter(SUMS[place], 0))
    draws = [held(COUNT, u=u) for u in (on, below)]
    assert [draw.chosen for draw in draws if draw is not None] == [place + 1, place]
    assert needed(u=on) == place + 2


def test_E_8_9_logprobs_use_the_exact_normaliser(monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = Normaliser(SCALED, np.float32(1))
    monkeypatch.setattr(Normaliser, "near", fresh.exact + 1e-7)
    selection = decide(SCALED, COUNT, Filters.of(Sampling(temperature=1.0)), fresh, 0.3, 0)
    assert selection is not None
    assert selection.normaliser == fresh.exact
    logits = np.array([0, -16], np.float32)
    choice = Sampler(Sampling(logprobs=0), [], 2).choose(logits)
    assert choice.logprobs is not None
    assert choice.logprobs.logprob == np.float32(-Normaliser(logits, np.float32(1)).exact)


def test_E_8_7_the_exact_normaliser_is_asked_only_near_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("dgpp.engine.sampler.normaliser.normaliser", lambda scaled: asked.append(0) or 0.0)
    fresh = Normaliser(SCALED, np.float32(1))
    filters = Filters.of(Sampling(temperature=1.0))
    assert decide(SCALED, COUNT, filters, fresh, 0.3, None) is not None
    assert asked == []
    decide(SCALED, COUNT, filters, fresh, float(SUMS[3]) + 1e-10, None)
    assert asked == [0]


def test_E_8_7_large_logits_have_a_coarse_normaliser() -> None:
    """Near 2^33 a normaliser has steps of 2^-19, so nothing but the exact one says which."""
    logits = np.full(300, 2.0**33, np.float32)
    filters, values = Filters.of(Sampling(temperature=1.0)), Normaliser(logits, np.float32(1))
    sums = running_sum(exp_array(logits.astype(np.float64) - values.exact))
    for u in (0.1, 0.5, 0.9):
        selection = decide(logits, 300, filters, values, u, None)
        assert selection is not None
        assert selection.chosen == int(np.argmax(sums > u))
