"""The serving engine on a tiny model: what requests get must not depend on who else is there."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from dgpp.engine import compiles
from dgpp.engine.engine import LocalEngine
from dgpp.engine.request import (
    ContextLengthExceeded,
    Event,
    FailEvent,
    FinishEvent,
    Handle,
    Overloaded,
    Request,
    Sampling,
    ShuttingDown,
    TokenEvent,
)
from tests.tiny import tiny_core, tokens


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    engine = LocalEngine(tiny_core(), queue_limit=32, prefill_budget=24)
    yield engine
    engine.shutdown()
    assert engine.stats().failed is None


def run(handle: Handle) -> tuple[list[int], Event]:
    events = [event for event in handle.events() if event is not None]
    return [event.token for event in events[:-1] if isinstance(event, TokenEvent)], events[-1]


def alone(engine: LocalEngine, request: Request) -> list[int]:
    return run(engine.submit(request)[0])[0]


def settle(engine: LocalEngine) -> None:
    for _ in range(500):
        stats = engine.stats()
        if stats.active == stats.queued == stats.prefilling == 0:
            break
        threading.Event().wait(0.01)
    assert engine.stats().pool_blocks_in_use == 0


def test_a_request_ends_at_its_budget_and_frees_what_it_held(engine: LocalEngine) -> None:
    generated, last = run(engine.submit(Request(tokens(20), 9))[0])
    assert len(generated) == 9
    assert last == FinishEvent("length")
    settle(engine)


def test_an_eos_token_is_reported_and_ends_the_request_unless_ignored(engine: LocalEngine) -> None:
    free = alone(engine, Request(tokens(20), 12))
    request = Request(tokens(20), 12, eos=frozenset({free[5]}))
    first = free.index(free[5])
    generated, last = run(engine.submit(request)[0])
    assert generated == free[: first + 1]
    assert last == FinishEvent("eos")
    assert alone(engine, replace(request, ignore_eos=True)) == free


def test_many_requests_at_once_each_get_the_text_they_get_alone(engine: LocalEngine) -> None:
    requests = [Request(tokens(5 + 13 * i, seed=i), 6 + i) for i in range(8)]
    requests[3] = replace(requests[3], sampling=Sampling(temperature=0.8, top_p=0.9, seed=7))
    requests[4] = replace(requests[4], sampling=Sampling(temperature=1.2, top_k=20, presence_penalty=0.5, seed=8))
    expected = [alone(engine, request) for request in requests]
    handles = [engine.submit(request)[0] for request in requests]
    assert [run(handle)[0] for handle in handles] == expected
    settle(engine)


def test_B2_nothing_compiles_after_the_engine_is_ready() -> None:
    engine = LocalEngine(tiny_core())
    requests = [Request(tokens(3 + 40 * i, seed=i), 5) for i in range(4)]
    requests.append(Request(tokens(9), 5, sampling=Sampling(temperature=1.0, logprobs=2, logit_bias=((3, 1.0),))))
    for handle in [engine.submit(request)[0] for request in requests]:
        run(handle)
    assert engine.stats().tokens_generated == 25
    assert engine.stats().compiles_after_ready == 0
    before = compiles.count()
    jax.jit(lambda x: x * 3)(jax.numpy.ones(7))
    assert compiles.count() > before  # the counter does count
    engine.shutdown()


def test_sampled_continuations_of_one_prompt_use_seed_plus_choice(engine: LocalEngine) -> None:
    request = Request(tokens(10), 8, sampling=Sampling(temperature=1.0, seed=2**64 - 1))
    group = [run(handle)[0] for handle in engine.submit(request, count=3)]
    seeds = [2**64 - 1, 0, 1]
    assert group == [alone(engine, replace(request, sampling=Sampling(temperature=1.0, seed=s))) for s in seeds]
    assert len({tuple(text) for text in group}) == 3


def test_logprobs_come_with_every_token_and_greedy_picks_the_most_likely(engine: LocalEngine) -> None:
    request = Request(tokens(10), 5, sampling=Sampling(logprobs=3))
    events = [e for e in engine.submit(request)[0].events() if isinstance(e, TokenEvent)]
    assert [e.token for e in events] == alone(engine, Request(tokens(10), 5))
    for event in events:
        assert event.logprobs is not None
        assert event.logprobs.top[0] == (event.token, event.logprobs.logprob)
        assert len(event.logprobs.top) == 3


def test_A2_a_request_that_exactly_fits_is_served_and_one_token_more_is_refused(engine: LocalEngine) -> None:
    limit = engine.info.context_limit
    assert limit == 512
    generated, last = run(engine.submit(Request(tokens(limit - 4), 4))[0])
    assert (len(generated), last) == (4, FinishEvent("length"))
    with pytest.raises(ContextLengthExceeded, match=r"508 tokens and the budget is 5: 513 in all, .* 512 tokens"):
        engine.submit(Request(tokens(limit - 4), 5))


def test_A11_requests_that_do_not_fit_together_are_served_one_after_the_other(engine: LocalEngine) -> None:
    request = Request(tokens(300), 20)
    expected = alone(engine, request)
    handles = [engine.submit(request)[0] for _ in range(3)]
    assert [run(handle)[0] for handle in handles] == [expected] * 3
    settle(engine)


def test_A7_a_cancelled_request_frees_its_slot_wherever_it_is(engine: LocalEngine) -> None:
    before = engine.stats().requests_cancelled
    decoding = engine.submit(Request(tokens(8), 400))[0]
    stream = decoding.events()
    assert isinstance(next(stream), TokenEvent)
    reading = engine.submit(Request(tokens(200, seed=2), 2))[0]
    waiting = [engine.submit(Request(tokens(8, seed=3), 400))[0] for _ in range(5)]
    for handle in (decoding, reading, *waiting):
        handle.cancel()
        handle.cancel()
    assert run(waiting[-1]) == ([], FinishEvent("cancelled"))
    settle(engine)
    decoding.cancel()  # after the end: nothing happens
    assert engine.stats().requests_cancelled - before in (6, 7)  # the short prompt may have been read already


def test_a_stop_ends_a_request_at_the_next_tick(engine: LocalEngine) -> None:
    handle = engine.submit(Request(tokens(8), 400))[0]
    seen = 0
    last: Event | None = None
    for event in handle.events():
        seen += isinstance(event, TokenEvent)
        if seen == 3:
            handle.stop()
        last = event
    assert last == FinishEvent("stop")
    assert seen < 50
    settle(engine)


def test_events_yields_none_while_nothing_happens(engine: LocalEngine) -> None:
    blocker = [engine.submit(Request(tokens(8, seed=i), 120))[0] for i in range(4)]
    waiting = engine.submit(Request(tokens(8), 1))[0]
    assert next(iter(waiting.events(timeout=0.0))) is None
    for handle in blocker:
        handle.cancel()
    assert len(run(waiting)[0]) == 1


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request((), 4), "prompt must hold at least one token"),
        (Request((1,), 0), "max_tokens must be at least 1, got 0"),
        (Request((1, 259), 4), "prompt token 259 is outside the vocabulary of 259"),
        (Request((1,), 4, sampling=Sampling(temperature=float("nan"))), "temperature"),
        (Request((1,), 4, sampling=Sampling(top_p=0.0)), "top_p"),
        (Request((1,), 4, sampling=Sampling(logit_bias=((300, 1.0),))), "logit_bias"),
    ],
)
def test_E_3_2_invalid_requests_are_refused_at_the_door(engine: LocalEngine, request_: Request, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        engine.submit(request_)


def test_E_3_3_a_full_queue_sheds_a_group_as_a_whole() -> None:
    engine = LocalEngine(tiny_core(slots=1, row_families=(16,)), queue_limit=2)
    running = engine.submit(Request(tokens(8), 300))[0]
    assert isinstance(next(running.events()), TokenEvent)
    engine.submit(Request(tokens(8), 2))
    with pytest.raises(Overloaded, match="1 requests are waiting, the limit is 2"):
        engine.submit(Request(tokens(8), 2), count=2)
    stats = engine.stats()
    assert (stats.queued, stats.requests_shed) == (1, 2)
    engine.shutdown()
    assert run(running)[1] == FailEvent("server_shutdown", "the server is shutting down")
    assert engine.stats().pool_blocks_in_use == 0
    with pytest.raises(ShuttingDown):
        engine.submit(Request(tokens(8), 2))


def test_logits_that_are_no_numbers_end_their_own_request_only() -> None:
    core = tiny_core(slots=2, row_families=(16,))
    step = core.step

    def poisoned(segments):  # type: ignore[no-untyped-def]
        result = step(segments)
        logits, picks = np.array(result.logits), result.picks.copy()
        wanted = [segment for segment in segments if segment.sampled]
        for row, segment in enumerate(wanted):
            if segment.start + len(segment.tokens) - 1 == 12:
                logits[row, 5] = np.nan
                picks[row] = -1
        return replace(result, logits=logits, padded_picks=picks)

    core.step = poisoned  # type: ignore[method-assign]
    engine = LocalEngine(core)
    bad = engine.submit(Request(tokens(10), 20))[0]
    sampled = engine.submit(Request(tokens(10), 20, sampling=Sampling(temperature=1.0)))[0]
    good = engine.submit(Request(tokens(20), 6))[0]
    for handle in (bad, sampled):
        generated, last = run(handle)
        assert len(generated) == 3
        assert isinstance(last, FailEvent)
        assert (last.code, "position 13" in last.message) == ("engine_failure", True)
    assert len(run(good)[0]) == 6
    stats = engine.stats()
    assert (stats.requests_failed, stats.failed, stats.pool_blocks_in_use) == (2, None, 0)
    engine.shutdown()


def test_an_engine_that_cannot_go_on_tells_every_owner() -> None:
    core = tiny_core(slots=2, row_families=(16,))
    engine = LocalEngine(core)

    def broken(segments):  # type: ignore[no-untyped-def]
        raise RuntimeError("the device is gone")

    core.step = broken  # type: ignore[method-assign]
    handles = engine.submit(Request(tokens(8), 4), count=4)  # at once: the first step fails
    for handle in handles:
        last = run(handle)[1]
        assert last == FailEvent("engine_failure", "the engine stopped: RuntimeError")
    stats = engine.stats()
    assert stats.failed == "RuntimeError('the device is gone')"
    assert stats.requests_failed == 4
    with pytest.raises(Exception, match="the device is gone"):
        engine.submit(Request(tokens(8), 2))


class Only:
    """The ids of a mask, or all of them."""

    def __init__(self, mask: np.ndarray | None) -> None:
        self.taken: list[int] = []
        self._mask = mask

    def allowed(self) -> np.ndarray | None:
        return self._mask

    def accept(self, token: int) -> None:
        self.taken.append(token)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, seed=5), Sampling(logprobs=2)])
def test_J6_every_token_obeys_its_mask_and_a_mask_of_everything_changes_nothing(
    engine: LocalEngine, sampling: Sampling
) -> None:
    free = Request(tokens(20), 8, sampling=sampling)
    expected = alone(engine, free)
    even = np.arange(engine.info.vocab_size) % 2 == 0
    made = [Only(None), Only(even)]
    asked = [replace(free, constraint=lambda constraint=constraint: constraint) for constraint in made]
    open_one, masked, beside = [run(engine.submit(one)[0])[0] for one in (*asked, free)]
    assert open_one == beside == expected
    assert masked != expected
    assert all(token % 2 == 0 for token in masked)
    assert [constraint.taken for constraint in made] == [open_one, masked]


def test_min_tokens_no_end_before_the_least_length(engine: LocalEngine) -> None:
    free = alone(engine, Request(tokens(20), 12))
    request = Request(tokens(20), 12, eos=frozenset({free[1]}), min_tokens=6)
    generated, _ = run(engine.submit(request)[0])
    assert len(generated) >= 6
    assert free[1] not in generated[:6]


LEFT_RUNNING = """
import atexit
from dgpp.engine.engine import LocalEngine
from dgpp.engine.request import Request
from tests.tiny import tiny_core, tokens

atexit.register(lambda: print(list(events)[-1].code))
engine = LocalEngine(tiny_core())
(handle,) = engine.submit(Request(tokens(4), 120))
events = handle.events()
next(events)
"""


def test_an_engine_that_is_left_running_ends_with_the_process() -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", LEFT_RUNNING], cwd=root, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "server_shutdown\n"), done.stderr
