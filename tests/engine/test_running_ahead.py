"""A step that takes the picks of the one before on the device: the same bits, and only where no host has to choose."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.engine import compiles
from dgpp.engine.batch import Segment, build, picked, unpacked
from dgpp.engine.core import Core, StepResult
from dgpp.engine.engine import LocalEngine
from dgpp.engine.request import FinishEvent, Request, Sampling, TokenEvent
from dgpp.kernels.rows import Phase
from tests.tiny import tiny_core, tokens


@pytest.mark.parametrize("world", [1, 2])
def test_picks_taken_on_the_device_give_the_bits_of_the_tokens_themselves(world: int) -> None:
    def first(core: Core) -> np.ndarray:
        core.warm_up()
        for slot in (0, 1):
            core.pool.reserve(slot, 32)
        prompts = [Segment(slot, 0, tokens(5 + slot, seed=slot), Phase.PREFILL, (4 + slot,)) for slot in (0, 1)]
        return core.step(prompts).picks

    told, taken = tiny_core(world=world), tiny_core(world=world)
    known = first(told)
    np.testing.assert_array_equal(first(taken), known)
    compiled, order = compiles.count(), (0, 1)
    for at in range(3):
        before, order = order, order[::-1]  # so that rows of a slot are not always the same
        rows = {slot: before.index(slot) for slot in order}
        by_hand = [Segment(slot, 5 + slot + at, (int(known[rows[slot]]),), Phase.DECODE, (0,)) for slot in order]
        ahead = [Segment(slot, 5 + slot + at, (picked(rows[slot]),), Phase.DECODE, (0,)) for slot in order]
        expected, found = told.step(by_hand), taken.step(ahead)
        assert np.asarray(found.logits).tobytes() == np.asarray(expected.logits).tobytes()
        known = expected.picks
        np.testing.assert_array_equal(found.picks, known)
    assert compiles.count() == compiled


def test_a_row_after_a_pick_that_is_none_goes_on_with_token_0() -> None:
    segments = [Segment(slot, 3, (token,), Phase.DECODE, (0,)) for slot, token in enumerate((picked(1), 7, picked(0)))]
    integers, shapes = build(segments, np.zeros((4, 2), np.int32), 8, 4).packed()
    rows, _, used = unpacked(jnp.asarray(integers), None, jnp.asarray([9, -1, 5, 5], jnp.int32), shapes)
    assert rows.token.tolist() == [0, 7, 9, -1, -1, -1, -1, -1]
    assert int(used) == 3


class Watched:
    """The tokens of every decoding row that a core is given, in the order of its steps."""

    def __init__(self, core: Core) -> None:
        self._step = core.step
        self.decoded: list[list[int]] = []
        core.step = self  # type: ignore[method-assign, assignment]

    def __call__(self, segments: Sequence[Segment]) -> StepResult:
        self.decoded.append([s.tokens[0] for s in segments if s.phase == Phase.DECODE])
        return self._step(segments)


@pytest.mark.parametrize(
    ("sampling", "min_tokens", "ahead"),
    [
        (Sampling(), 0, True),
        (Sampling(logprobs=1), 0, False),
        (Sampling(temperature=1.0, seed=3), 0, False),
        (Sampling(), 2, False),
    ],
)
def test_a_step_begins_before_the_tokens_are_read_where_they_are_all_picks(
    sampling: Sampling, min_tokens: int, ahead: bool
) -> None:
    core = tiny_core(row_families=(16,))
    engine = LocalEngine(core)
    watched = Watched(core)
    request = Request(tokens(6), 5, eos=frozenset({1}), ignore_eos=False, sampling=sampling, min_tokens=min_tokens)
    text = _text(engine, request)
    engine.shutdown()
    assert len(text) == 5
    fed = [row for rows in watched.decoded for row in rows]
    assert fed == ([picked(0)] * 4 if ahead else text[:-1])


def test_what_a_request_held_is_given_away_while_its_last_row_is_under_way() -> None:
    core = tiny_core(slots=1, pool_tokens=64, row_families=(16,))
    engine = LocalEngine(core)
    free = _text(engine, Request(tokens(20), 20))
    other = Request(tokens(30, seed=5), 20)
    expected = _text(engine, other)
    watched = Watched(core)
    ends = Request(tokens(20), 20, eos=frozenset({free[3]}))
    before, after = engine.submit(ends)[0], engine.submit(other)[0]
    events = list(before.events())
    assert [e.token for e in events if isinstance(e, TokenEvent)] == free[: free.index(free[3]) + 1]
    assert events[-1] == FinishEvent("eos")
    assert [e.token for e in after.events() if isinstance(e, TokenEvent)] == expected
    rows = sum(map(len, watched.decoded))
    engine.shutdown()
    assert rows == free.index(free[3]) + 1 + 19  # one for nobody
    assert engine.stats().pool_blocks_in_use == 0
    assert engine.stats().tokens_generated == 40 + free.index(free[3]) + 1 + 20


def _text(engine: LocalEngine, request: Request) -> list[int]:
    return [event.token for event in engine.submit(request)[0].events() if isinstance(event, TokenEvent)]
