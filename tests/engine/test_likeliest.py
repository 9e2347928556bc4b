"""An engine whose device hands over the likeliest ids: the same tokens, and logits are read only where they must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dgpp.engine.batch import Segment
from dgpp.engine.core import Core, StepResult
from dgpp.engine.engine import LocalEngine
from dgpp.engine.request import Request, Sampling, TokenEvent
from dgpp.engine.settings import CoreSettings
from dgpp.kernels import default
from tests.kernels.likeliest import likeliest
from tests.tiny import tiny, tiny_core, tokens

SETTINGS = (
    Sampling(temperature=1.0, top_k=20, top_p=0.95, seed=1),
    Sampling(temperature=0.7, top_p=0.3, seed=2, logprobs=5),
    Sampling(temperature=1.3, min_p=0.5, seed=3),
    Sampling(logprobs=3),
    Sampling(),
)


class Read(Exception):
    """The logits were read."""


class Unread:
    """Logits that must not be read."""

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise Read


def asking() -> Core:
    settings = CoreSettings(slots=4, pool_tokens=512, page_tokens=16, row_families=(16, 64))
    return Core(*tiny(), settings, replace(default(), likeliest=likeliest))


def texts(engine: LocalEngine, requests: Sequence[Request]) -> list[list[TokenEvent]]:
    handles = [engine.submit(request)[0] for request in requests]
    return [[event for event in handle.events() if isinstance(event, TokenEvent)] for handle in handles]


def requests(*settings: Sampling) -> list[Request]:
    return [Request(tokens(4 + 5 * i, seed=i), 6, ignore_eos=True, sampling=each) for i, each in enumerate(settings)]


def test_requests_get_the_tokens_that_the_logits_give_and_nothing_compiles_on_the_way() -> None:
    plain, core = LocalEngine(tiny_core()), asking()
    expected = texts(plain, requests(*SETTINGS))
    plain.shutdown()
    step = core.step

    def unread(segments: Sequence[Segment]) -> StepResult:
        return replace(step(segments), logits=Unread())  # type: ignore[arg-type]

    core.step = unread  # type: ignore[method-assign]
    engine = LocalEngine(core)
    assert texts(engine, requests(*SETTINGS)) == expected
    assert engine.stats().compiles_after_ready == 0
    engine.shutdown()


@pytest.mark.parametrize(
    "changed",
    [
        {"top_k": 200},
        {"presence_penalty": 0.5},
        {"logit_bias": ((3, 1.0),)},
        {"min_tokens": 3},
    ],
)
def test_logits_are_read_where_the_likeliest_do_not_settle_the_token(changed: Mapping[str, Any]) -> None:
    least = {"min_tokens": changed["min_tokens"], "ignore_eos": False} if "min_tokens" in changed else {}
    sampling = replace(SETTINGS[0], **({} if least else changed))
    (request,) = requests(sampling)
    request = replace(request, eos=frozenset({1}), **least)
    plain, core = LocalEngine(tiny_core()), asking()
    expected = texts(plain, [request])
    plain.shutdown()
    reads: list[int] = []
    step = core.step

    class Counted:
        def __init__(self, logits: Any) -> None:
            self._logits = logits

        def __array__(self, *_: Any, **__: Any) -> np.ndarray:
            reads.append(1)
            return np.asarray(self._logits)

    def counted(segments: Sequence[Segment]) -> StepResult:
        result = step(segments)
        return replace(result, logits=Counted(result.logits))  # type: ignore[arg-type]

    core.step = counted  # type: ignore[method-assign]
    engine = LocalEngine(core)
    assert texts(engine, [request]) == expected
    engine.shutdown()
    assert len(reads) == (3 if least else 6)
