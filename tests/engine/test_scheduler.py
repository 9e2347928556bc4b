from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dgpp.engine.pages import PagePool
from dgpp.engine.request import Request
from dgpp.engine.scheduler import Fifo, Live
from dgpp.kernels.rows import Phase


def fifo(pages: int = 16, slots: int = 3, max_rows: int = 32, budget: int = 8) -> tuple[Fifo, PagePool]:
    pool = PagePool(pages, 16, slots, pages)
    return Fifo(pool, slots, max_rows, budget), pool


def live(id: int, prompt: int, max_tokens: int = 4) -> Live:
    return Live(id, Request(tuple(range(prompt)), max_tokens))


def shape(plan: list[Any]) -> list[tuple[int, int, int, Phase, bool]]:
    return [(one.id, s.start, len(s.tokens), s.phase, bool(s.sampled)) for one, s in plan]


def step(scheduler: Fifo) -> list[tuple[int, int, int, Phase, bool]]:
    """One tick in which every sampled row yields the token 7."""
    plan = scheduler.plan()
    scheduler.advance(plan)
    for one, segment in plan:
        if segment.sampled:
            one.generated.append(7)
    return shape(plan)


def test_a_prompt_alone_uses_the_whole_step_and_samples_only_its_last_row() -> None:
    scheduler, _ = fifo()
    scheduler.add(live(1, 40))
    assert step(scheduler) == [(1, 0, 32, Phase.PREFILL, False)]
    assert step(scheduler) == [(1, 32, 8, Phase.PREFILL, True)]
    assert step(scheduler) == [(1, 40, 1, Phase.DECODE, True)]


def test_A10_decoding_goes_on_while_a_long_prompt_is_read_in_chunks() -> None:
    scheduler, _ = fifo()
    scheduler.add(live(1, 4))
    step(scheduler)
    scheduler.add(live(2, 20))
    assert step(scheduler) == [(1, 4, 1, Phase.DECODE, True), (2, 0, 8, Phase.PREFILL, False)]
    scheduler.add(live(3, 2))
    assert step(scheduler) == [(1, 5, 1, Phase.DECODE, True), (2, 8, 8, Phase.PREFILL, False)]
    assert step(scheduler) == [
        (1, 6, 1, Phase.DECODE, True),
        (2, 16, 4, Phase.PREFILL, True),
        (3, 0, 2, Phase.PREFILL, True),
    ]


def test_admission_is_strictly_in_arrival_order() -> None:
    scheduler, pool = fifo(pages=4, slots=3)
    first, second, third = live(1, 20, 12), live(2, 40, 8), live(3, 1, 1)
    for one in (first, second, third):
        scheduler.add(one)
    scheduler.plan()
    assert [one.id for one in scheduler.running] == [1]  # the second needs 3 pages, 2 are free; the third waits too
    assert scheduler.queued == 2
    scheduler.remove(first)
    scheduler.plan()
    assert [one.id for one in scheduler.running] == [2, 3]
    assert pool.in_use == 4


def test_A7_removing_a_request_frees_its_slot_and_pages_in_every_state() -> None:
    scheduler, pool = fifo(slots=1)
    reading, waiting = live(1, 60), live(2, 60)
    scheduler.add(reading)
    scheduler.add(waiting)
    scheduler.plan()
    scheduler.remove(waiting)
    scheduler.remove(reading)
    assert (scheduler.queued, scheduler.running, pool.in_use) == (0, [], 0)
    last = live(3, 4)
    scheduler.add(last)
    assert shape(scheduler.plan()) == [(3, 0, 4, Phase.PREFILL, True)]
    assert last.slot == 0


def test_bad_limits_are_refused() -> None:
    with pytest.raises(ValueError, match="prefill_budget must be at least 1"):
        fifo(budget=0)
    with pytest.raises(ValueError, match="40 slots need at least as many rows"):
        fifo(slots=40)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 6)), min_size=1, max_size=12), st.integers(1, 20))
def test_E_3_1_equal_calls_give_equal_plans_and_everything_ends(sizes: list[tuple[int, int]], budget: int) -> None:
    histories = []
    for _ in range(2):
        scheduler, pool = fifo(budget=budget)
        pending = [live(i, prompt, most) for i, (prompt, most) in enumerate(sizes)]
        for one in pending:
            scheduler.add(one)
        history = []
        for _ in range(2000):
            plan = step(scheduler)
            if not plan:
                break
            history.append(plan)
            assert sum(count for _, _, count, _, _ in plan) <= 32
            for one in list(scheduler.running):
                assert one.computed <= len(one.request.prompt) + len(one.generated)
                if len(one.generated) == one.request.max_tokens:
                    scheduler.remove(one)
        assert [len(one.generated) for one in pending] == [most for _, most in sizes]
        assert (pool.in_use, scheduler.queued, scheduler.running) == (0, 0, [])
        histories.append(history)
    assert histories[0] == histories[1]
