"""The scripted engine keeps the promises of the Engine protocol that tests above it lean on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from dgpp.engine.request import (
    ContextLengthExceeded,
    Engine,
    EngineFailed,
    Event,
    FailEvent,
    FinishEvent,
    Handle,
    Overloaded,
    Request,
    Sampling,
    ShuttingDown,
    TokenEvent,
    TokenLogprobs,
)
from dgpp.engine.scripted import INFO, ScriptedEngine

EOS = 99


@pytest.fixture
def make() -> Iterator[type[ScriptedEngine]]:
    """ScriptedEngine, whose instances are shut down at the end."""
    made: list[ScriptedEngine] = []

    class Kept(ScriptedEngine):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, **kwargs)  # type: ignore[arg-type]
            made.append(self)

    yield Kept
    for engine in made:
        engine.shutdown()


def asked(max_tokens: int = 10, **fields: object) -> Request:
    return Request(prompt=(1, 2, 3), max_tokens=max_tokens, eos=frozenset({EOS}), **fields)  # type: ignore[arg-type]


def told(handle: Handle) -> tuple[list[int], Event]:
    """(tokens, last event) of a request that runs to its end."""
    *tokens, last = list(handle.events())
    return [event.token for event in tokens if isinstance(event, TokenEvent)], last  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("script", "request_", "tokens", "reason"),
    [
        ([5, 6], asked(), [5, 6, EOS], "eos"),
        ([5, 6], asked(2), [5, 6], "length"),
        ([5, EOS, 6], asked(), [5, EOS], "eos"),
        ([5, EOS, 6], asked(3, ignore_eos=True), [5, EOS, 6], "length"),
        ([5, 6], asked(5, ignore_eos=True), [5, 6, 5, 6, 5], "length"),
        ([], asked(), [EOS], "eos"),
        ([], asked(2, ignore_eos=True), [EOS, EOS], "length"),
        ([5], replace(asked(), eos=frozenset()), [5], "eos"),
    ],
)
def test_ends(make: type[ScriptedEngine], script: list[int], request_: Request, tokens: list[int], reason: str) -> None:
    engine: Engine = make(script)
    [handle] = engine.submit(request_)
    assert told(handle) == (tokens, FinishEvent(reason))  # type: ignore[arg-type]
    stats = engine.stats()
    assert stats.finished == {reason: 1}
    assert (stats.tokens_generated, stats.prompt_tokens, stats.prompts_prefilled) == (len(tokens), 3, 1)
    assert (stats.active, stats.queued, stats.pool_blocks_in_use) == (0, 0, 0)


def test_groups_get_their_own_scripts_and_seeds(make: type[ScriptedEngine]) -> None:
    engine = make(lambda request, index: [10 + index] * (request.sampling.seed - 7 + 1))
    handles = engine.submit(asked(sampling=Sampling(seed=7)), count=3)
    assert [told(handle)[0] for handle in handles] == [[10, EOS], [11, 11, EOS], [12, 12, 12, EOS]]


def test_logprobs(make: type[ScriptedEngine]) -> None:
    [handle] = make([5]).submit(asked(1, sampling=Sampling(logprobs=2)))
    event = next(handle.events())
    assert event == TokenEvent(5, TokenLogprobs(-0.25, ((5, -0.25), (6, -1.25))))


@pytest.mark.parametrize("stage", ["queue", "prefill", "decode"])
def test_cancel_and_stop_pass_a_held_stage(make: type[ScriptedEngine], stage: str) -> None:
    engine = make([5] * 100, hold=[stage])
    first, second = engine.submit(asked(), count=2)
    assert next(first.events(timeout=0.02)) is None
    first.cancel()
    first.cancel()
    second.stop()
    assert [told(handle)[1] for handle in (first, second)] == [FinishEvent("cancelled"), FinishEvent("stop")]
    assert engine.stats().requests_cancelled == 1
    assert engine.stats().pool_blocks_in_use == 0
    first.cancel()
    assert engine.stats().finished == {"cancelled": 1, "stop": 1}


def test_slots_queue_and_pool(make: type[ScriptedEngine]) -> None:
    info = replace(INFO, max_concurrency=2, queue_limit=3, pool_tokens=64, position_ceiling=64)
    engine = make([5], info=info, hold=["decode"])
    running = engine.submit(asked(20), count=2)
    threading.Event().wait(0.05)
    assert (engine.stats().active, engine.stats().pool_blocks_in_use) == (2, 4)
    waiting = engine.submit(asked(), count=3)
    with pytest.raises(Overloaded):
        engine.submit(asked())
    with pytest.raises(ContextLengthExceeded):
        engine.submit(asked(62))
    assert engine.stats().queued == 3
    assert engine.stats().requests_shed == 1
    engine.release()
    assert all(told(handle)[1] == FinishEvent("eos") for handle in [*running, *waiting])


def test_failures(make: type[ScriptedEngine]) -> None:
    failure = FailEvent("engine_failure", "as scripted")
    [handle] = make([5, failure]).submit(asked())
    assert told(handle) == ([5], failure)
    engine = make([5] * 100, hold=["decode"])
    [handle] = engine.submit(asked())
    engine.fail("broken")
    assert told(handle)[1] == FailEvent("engine_failure", "broken")
    assert engine.stats().failed == "broken"
    with pytest.raises(EngineFailed):
        engine.submit(asked())
    engine = make([5] * 100, hold=["decode"])
    [handle] = engine.submit(asked())
    engine.shutdown()
    assert isinstance(told(handle)[1], FailEvent)
    assert engine.stats().failed is None
    with pytest.raises(ShuttingDown):
        engine.submit(asked())
