from __future__ import annotations

import math
from typing import Any

import pytest

from dgpp.engine.request import Sampling
from dgpp.engine.sampler import is_greedy, needs_logits, validate

BAD: list[tuple[str, Any]] = [
    *(("temperature", value) for value in (-0.1, math.nan, math.inf, 1e39)),
    *(("top_p", value) for value in (0.0, -0.1, 1.01, math.nan, 1e-60)),
    *(("min_p", value) for value in (-0.01, 1.01, math.nan)),
    *(("top_k", value) for value in (-1,)),
    *(("repetition_penalty", value) for value in (0.0, -1.0, math.nan, math.inf, 1e-60)),
    *(("presence_penalty", value) for value in (math.nan, math.inf, -1e39)),
    *(("frequency_penalty", value) for value in (math.nan, -math.inf)),
    *(("logprobs", value) for value in (-1,)),
    *(("logit_bias", value) for value in (((-1, 1.0),), ((8, 1.0),), ((2, math.nan),), ((2, 1.0), (2, 1.0)))),
]


@pytest.mark.parametrize(("field", "value"), BAD)
def test_E_8_2_names_the_field(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=field):
        validate(Sampling(**{field: value}), 8)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=1e-5, top_p=1e-4, min_p=1.0, top_k=2**31 - 1),
        Sampling(temperature=2.0, top_p=1.0, min_p=0.0),
        Sampling(repetition_penalty=100.0, presence_penalty=-2.0, frequency_penalty=2.0),
        Sampling(logit_bias=((0, -100.0), (7, 100.0)), logprobs=20, seed=-5),
    ],
)
def test_E_8_2_accepts(sampling: Sampling) -> None:
    validate(sampling, 8)


def test_P2_tiny_temperatures_are_greedy() -> None:
    assert [is_greedy(Sampling(temperature=t)) for t in (0.0, 1e-6, 1e-45, 1e-5, 0.01)] == [True] * 3 + [False] * 2


@pytest.mark.parametrize(
    "changed",
    [
        {"temperature": 0.5},
        {"repetition_penalty": 1.1},
        {"presence_penalty": -0.1},
        {"frequency_penalty": 0.1},
        {"logit_bias": ((1, 0.0),)},
        {"logprobs": 0},
    ],
)
def test_plain_greedy_alone_needs_no_logits(changed: dict[str, Any]) -> None:
    assert not needs_logits(Sampling(top_p=0.5, top_k=3, min_p=0.1, seed=9))
    assert needs_logits(Sampling(**changed))
