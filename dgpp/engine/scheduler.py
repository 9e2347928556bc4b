"""Who runs in the next step. A scheduler is plain Python over integers: the same calls give the same plans.

`Scheduler` is the interface the engine drives; `Fifo` admits strictly in arrival order and fills each step with one
row of every decoding request and, under a row budget, chunks of the prompts still being read.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dgpp.engine.batch import Segment, picked
from dgpp.engine.pages import PagePool
from dgpp.engine.request import Request
from dgpp.kernels.rows import Phase


@dataclass
class Live:
    """One live request as the scheduler sees it. `computed` tokens of prompt + generated are in the cache, or will be
    after the steps under way. Of its tokens `asked` were asked for, the last one in wanted row `row` of the last step;
    `generated` are those of them that are known."""

    id: int
    request: Request
    slot: int = -1
    computed: int = 0
    asked: int = 0
    row: int = 0
    generated: list[int] = field(default_factory=list)

    @property
    def reserve_tokens(self) -> int:
        """Tokens the request may hold in all. The last generated one is never written to the cache."""
        return len(self.request.prompt) + self.request.max_tokens

    @property
    def last(self) -> int:
        """The token that its next row has, where it is not reading its prompt."""
        return self.generated[-1] if self.asked == len(self.generated) else picked(self.row)

    @property
    def prefilling(self) -> bool:
        """Is part of the prompt still to be read?"""
        return self.computed < len(self.request.prompt)


class Scheduler(Protocol):
    """The engine's policy: which requests hold slots, and what each contributes to the next step."""

    def add(self, live: Live) -> None:
        """Queues a request. It must fit the pool when alone."""

    def remove(self, live: Live) -> None:
        """Forgets a request, queued or running, and frees its slot and pages."""

    def plan(self) -> list[tuple[Live, Segment]]:
        """Admits what fits and returns the segments of the next step; empty when nothing can run.

        A segment samples its last row exactly when the request's next token follows from it. At most the last step's
        tokens may be unknown yet.
        """

    def advance(self, planned: Sequence[tuple[Live, Segment]]) -> None:
        """Records that the planned segments are computed, or will be."""

    @property
    def queued(self) -> int:
        """Requests without a slot."""

    @property
    def running(self) -> list[Live]:
        """Requests with a slot, in arrival order."""


class Fifo:
    """Strict arrival order: the oldest queued request waits for a slot and for pages for prompt + max_tokens.

    `prefill_budget` rows of a step at most go to prompts while others decode; a step never exceeds `max_rows`.
    """

    def __init__(self, pool: PagePool, slots: int, max_rows: int, prefill_budget: int) -> None:
        if not slots <= max_rows:
            raise ValueError(f"{slots} slots need at least as many rows a step, got {max_rows}")
        if prefill_budget < 1:
            raise ValueError(f"prefill_budget must be at least 1, got {prefill_budget}")
        self._pool = pool
        self._max_rows = max_rows
        self._prefill_budget = prefill_budget
        self._free_slots = list(range(slots))
        self._queue: deque[Live] = deque()
        self._running: list[Live] = []

    @property
    def queued(self) -> int:
        """Requests without a slot."""
        return len(self._queue)

    @property
    def running(self) -> list[Live]:
        """Requests with a slot, in arrival order."""
        return self._running

    def add(self, live: Live) -> None:
        """Queues a request at the end."""
        self._queue.append(live)

    def remove(self, live: Live) -> None:
        """Forgets a request and frees what it holds."""
        if live.slot < 0:
            self._queue.remove(live)
            return
        self._running.remove(live)
        self._pool.release(live.slot)
        self._free_slots.append(live.slot)
        self._free_slots.sort()
        live.slot = -1

    def plan(self) -> list[tuple[Live, Segment]]:
        """Every decoding request gives one row, unless it has asked for all its tokens; then prompts, oldest first,
        share what is left of the budget."""
        self._admit()
        planned = []
        rows = self._max_rows
        for live in self._running:
            if not live.prefilling and live.asked < live.request.max_tokens:
                segment = Segment(live.slot, live.computed, (live.last,), Phase.DECODE, (0,))
                planned.append((live, segment))
                rows -= 1
        budget = min(rows, self._prefill_budget) if planned else rows
        for live in self._running:
            if live.prefilling and budget:
                tokens = live.request.prompt[live.computed : live.computed + budget]
                last = live.computed + len(tokens) == len(live.request.prompt)
                sampled = (len(tokens) - 1,) if last else ()
                planned.append((live, Segment(live.slot, live.computed, tokens, Phase.PREFILL, sampled)))
                budget -= len(tokens)
        return planned

    def advance(self, planned: Sequence[tuple[Live, Segment]]) -> None:
        """Moves every planned request's counters past its segment."""
        wanted = itertools.count()
        for live, segment in planned:
            live.computed = segment.start + len(segment.tokens)
            if segment.sampled:
                live.asked, live.row = live.asked + 1, next(wanted)

    def _admit(self) -> None:
        while self._queue and self._free_slots:
            live = self._queue[0]
            if self._pool.pages_for(live.reserve_tokens) > self._pool.free:
                return
            self._queue.popleft()
            live.slot = self._free_slots.pop(0)
            self._pool.reserve(live.slot, live.reserve_tokens)
            self._running.append(live)
