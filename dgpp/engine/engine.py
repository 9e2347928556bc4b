"""The engine that serves: one thread that plans, steps, and hands tokens to the owners of requests.

A tick sweeps cancelled and stopped requests, asks the scheduler for a plan, begins its step and applies the tokens of
one. Flags raised during a step are seen by the next tick's sweep, so whatever ends a request frees its slot and pages
within one step, wherever the request is: queued, reading its prompt, or decoding.

Where all tokens of a step are the device's picks, the next step begins before they are read: it takes them on the
device, and the host's work is done beside it. A request that ends with such a step has one more row under way, whose
token nobody gets; what it held may be given away at once, since the device works in order.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import logging
import threading
import time
import weakref
from collections import Counter
from dataclasses import dataclass

from dgpp.engine import compiles
from dgpp.engine.batch import Segment, family_for
from dgpp.engine.chooser import Chooser, choose
from dgpp.engine.core import Core, StepResult
from dgpp.engine.decode_tally import DecodeTally
from dgpp.engine.mailbox import Mailbox
from dgpp.engine.request import (
    ContextLengthExceeded,
    EngineFailed,
    EngineInfo,
    EngineStats,
    FailEvent,
    FinishEvent,
    FinishReason,
    Handle,
    Overloaded,
    PrefillProgress,
    Request,
    ShuttingDown,
    TokenEvent,
    continuations,
)
from dgpp.engine.sampler import validate
from dgpp.engine.scheduler import Fifo, Live, Scheduler
from dgpp.kernels.rows import Phase

logger = logging.getLogger(__name__)


class RunningHandle(Mailbox):
    """The owner's side of a request: events in, two flags out."""

    def __init__(self, live: Live, vocab_size: int, wake: threading.Condition) -> None:
        super().__init__()
        self.live = live
        self.chooser = Chooser(live.request, vocab_size)
        self.stopped = False
        self.cancelled = False
        self._wake = wake

    def stop(self) -> None:
        """Ends the request at the next tick with reason "stop"."""
        with self._wake:
            self.stopped = True
            self._wake.notify()

    def cancel(self) -> None:
        """Ends the request at the next tick with reason "cancelled"."""
        with self._wake:
            self.cancelled = True
            self._wake.notify()


_running: weakref.WeakSet[LocalEngine] = weakref.WeakSet()


@dataclass(frozen=True)
class _UnderWay:
    """A step that has begun: its plan, the owners of its wanted rows, and when it began."""

    planned: list[tuple[Live, Segment]]
    sampled: list[RunningHandle]
    result: StepResult
    began: float


class LocalEngine:
    """An `Engine` over one `Core` in this process. One that is not shut down is at the end of the process."""

    def __init__(self, core: Core, *, queue_limit: int = 64, prefill_budget: int = 240) -> None:
        """Warms the core up and starts the thread. `queue_limit` 0 means no limit."""
        self._core = core
        settings = core.settings
        self._info = EngineInfo(
            vocab_size=core.config.vocab_size,
            position_ceiling=core.position_ceiling,
            pool_tokens=core.pool.pages * settings.page_tokens,
            max_concurrency=settings.slots,
            queue_limit=queue_limit,
            world_size=settings.world,
            prefill_budget=prefill_budget,
            idle_prefill_budget=max(settings.row_families),
        )
        self._scheduler: Scheduler = Fifo(core.pool, settings.slots, max(settings.row_families), prefill_budget)
        self._wake = threading.Condition()
        self._arrivals: list[RunningHandle] = []
        self._handles: dict[int, RunningHandle] = {}
        self._ids = itertools.count()
        self._closing = False
        self._failed: str | None = None
        self._counts: Counter[str] = Counter()
        self._finished: Counter[str] = Counter()
        self._step_seconds = self._prefill_seconds = self._prompt_seconds = 0.0
        self._last_read = 0.0  # when the last step's picks were read
        self._decode = DecodeTally()
        core.warm_up()
        self._compiles_at_ready = compiles.count()
        self._thread = threading.Thread(target=self._run, name="dgpp-engine", daemon=True)
        self._thread.start()
        _running.add(self)
        _at_exit()

    # --- the server's side --------------------------------------------------------------------------------------------

    @property
    def info(self) -> EngineInfo:
        """Limits, fixed for the engine's life."""
        return self._info

    def submit(self, request: Request, *, count: int = 1) -> list[Handle]:
        """Accepts `count` continuations of one prompt, or none; choice c samples with seed + c (64 bits).

        Raises ValueError for a request that no engine could run, and what `Engine.submit` names.
        """
        if not request.prompt:
            raise ValueError("prompt must hold at least one token")
        if request.max_tokens < 1:
            raise ValueError(f"max_tokens must be at least 1, got {request.max_tokens}")
        wrong = [t for t in request.prompt if not 0 <= t < self._info.vocab_size]
        if wrong:
            raise ValueError(f"prompt token {wrong[0]} is outside the vocabulary of {self._info.vocab_size}")
        total, limit = len(request.prompt) + request.max_tokens, self._info.context_limit
        if total > limit:
            raise ContextLengthExceeded(
                f"the prompt has {len(request.prompt)} tokens and the budget is {request.max_tokens}: "
                f"{total} in all, more than the context of {limit} tokens"
            )
        validate(request.sampling, self._info.vocab_size)
        handles = []
        for one in continuations(request, count):
            handles.append(RunningHandle(Live(next(self._ids), one), self._info.vocab_size, self._wake))
        with self._wake:
            if self._failed:
                raise EngineFailed(self._failed)
            if self._closing:
                raise ShuttingDown("the server is shutting down")
            waiting = self._scheduler.queued + len(self._arrivals)
            if self._info.queue_limit and waiting + count > self._info.queue_limit:
                self._counts["requests_shed"] += count
                raise Overloaded(f"{waiting} requests are waiting, the limit is {self._info.queue_limit}")
            self._arrivals.extend(handles)
            self._counts["requests_total"] += count
            self._wake.notify()
        return list(handles)

    def stats(self) -> EngineStats:
        """The counters now."""
        with self._wake:
            running = self._scheduler.running
            prefilling = sum(live.prefilling for live in running)
            handles = [*self._handles.values(), *self._arrivals]
            now = time.monotonic()
            return EngineStats(
                active=len(running) - prefilling,
                prefilling=prefilling,
                queued=self._scheduler.queued + len(self._arrivals),
                pool_blocks_total=self._core.pool.pages,
                pool_blocks_in_use=self._core.pool.in_use,
                finished=dict(self._finished),
                step_ms=self._step_seconds * 1e3,
                prefill_ms=self._prefill_seconds * 1e3,
                compiles_after_ready=compiles.count() - self._compiles_at_ready,
                failed=self._failed,
                pending_admissions=len(self._arrivals),
                pending_cancellations=sum(handle.cancelled or handle.stopped for handle in handles),
                record_tokens=sum(len(each.live.request.prompt) + len(each.live.generated) for each in handles),
                prefill_request_ms=self._prompt_seconds * 1e3,
                decode=self._decode.snapshot(),
                prefills=tuple(
                    PrefillProgress(
                        live.id,
                        live.slot,
                        len(live.request.prompt),
                        live.computed,
                        1e3 * (now - (self._handles[live.id].admitted or now)),
                    )
                    for live in running
                    if live.prefilling
                ),
                **self._counts,
            )

    def shutdown(self, timeout: float = 30.0) -> None:
        """Refuses new requests, ends live ones with `server_shutdown`, and joins the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(timeout)

    # --- the engine's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        before: _UnderWay | None = None
        try:
            while True:
                with self._wake:
                    while not (self._closing or self._arrivals or self._handles or before):
                        self._wake.wait()
                    planned = [] if self._closing else self._sweep_and_plan()
                    if self._closing and not before:
                        break
                step = self._begin(planned) if planned else None
                if before is not None:
                    self._end(before)
                before = step
                if step is not None and not self._may_run_ahead(step):
                    self._end(step)
                    before = None
        except Exception as error:  # the engine cannot go on: every owner must hear of it
            logger.exception("the engine stopped")
            self._end_all(FailEvent("engine_failure", f"the engine stopped: {type(error).__name__}"), repr(error))
            return
        self._end_all(FailEvent("server_shutdown", "the server is shutting down"), None)

    def _sweep_and_plan(self) -> list[tuple[Live, Segment]]:
        for handle in self._arrivals:
            self._handles[handle.live.id] = handle
            self._scheduler.add(handle.live)
        self._arrivals.clear()
        for handle in list(self._handles.values()):
            if handle.cancelled:
                self._finish(handle, "cancelled")
            elif handle.stopped:
                self._finish(handle, "stop")
        planned = self._scheduler.plan()
        for live, _ in planned:
            handle = self._handles[live.id]
            if handle.admitted is None:
                handle.admitted = time.monotonic()
        return planned

    def _begin(self, planned: list[tuple[Live, Segment]]) -> _UnderWay:
        began = time.perf_counter()
        result = self._core.step([segment for _, segment in planned])
        with self._wake:
            self._scheduler.advance(planned)
        return _UnderWay(
            planned, [self._handles[live.id] for live, segment in planned if segment.sampled], result, began
        )

    def _may_run_ahead(self, step: _UnderWay) -> bool:
        return self._core.takes_picks and all(handle.chooser.takes_every_pick for handle in step.sampled)

    def _end(self, step: _UnderWay) -> None:
        tokens = self._choose(step.sampled, step.result)
        read = time.perf_counter()
        seconds = read - max(step.began, self._last_read)
        self._last_read = read
        with self._wake:
            self._count(step.planned, seconds)
            for handle, event in zip(step.sampled, tokens, strict=True):
                if handle.live.id in self._handles:
                    self._apply(handle, event)

    def _choose(self, sampled: list[RunningHandle], result: StepResult) -> list[TokenEvent | FailEvent]:
        """The next token of every sampled request."""
        return choose([handle.chooser for handle in sampled], result)

    def _apply(self, handle: RunningHandle, event: TokenEvent | FailEvent) -> None:
        """Publishes a token, then tests in the order of E-3.6: end of sequence, then the budget."""
        live = handle.live
        if isinstance(event, FailEvent):
            self._forget(handle)
            self._counts["requests_failed"] += 1
            handle.put(event)
            return
        if not live.generated:
            self._counts["prompts_prefilled"] += 1
            self._prompt_seconds += time.monotonic() - (handle.admitted or 0.0)
        live.generated.append(event.token)
        self._counts["tokens_generated"] += 1
        handle.put(event)
        if event.token in live.request.eos and not live.request.ignore_eos:
            self._finish(handle, "eos")
        elif len(live.generated) >= live.request.max_tokens:
            self._finish(handle, "length")

    def _finish(self, handle: RunningHandle, reason: FinishReason) -> None:
        self._forget(handle)
        self._finished[reason] += 1
        if reason == "cancelled":
            self._counts["requests_cancelled"] += 1
        handle.put(FinishEvent(reason))

    def _forget(self, handle: RunningHandle) -> None:
        del self._handles[handle.live.id]
        self._scheduler.remove(handle.live)

    def _count(self, planned: list[tuple[Live, Segment]], seconds: float) -> None:
        decoding = sum(segment.phase == Phase.DECODE for _, segment in planned)
        reading = sum(len(segment.tokens) for _, segment in planned if segment.phase == Phase.PREFILL)
        self._counts["prompt_tokens"] += reading
        self._counts["prompt_tokens_computed"] += reading
        self._counts["decode_rows"] += decoding
        if decoding:
            self._counts["decode_steps"] += 1
            self._step_seconds += seconds
            rows = family_for(decoding + reading, self._core.settings.row_families)
            self._decode.add(decoding, decoding + reading, rows, seconds)
        else:
            self._prefill_seconds += seconds

    def _end_all(self, event: FailEvent, failed: str | None) -> None:
        with self._wake:
            self._failed = failed
            self._closing = True
            for handle in [*self._handles.values(), *self._arrivals]:
                if handle.live.id in self._handles:
                    self._scheduler.remove(handle.live)
                self._counts["requests_failed"] += 1
                handle.put(event)
            self._handles.clear()
            self._arrivals.clear()


@functools.cache
def _at_exit() -> None:
    """A step under way while the interpreter ends would be cut in the device's library, which aborts the process.
    Registered with the first engine, and so after what a core registers, whose helpers must outlive the last step."""
    atexit.register(_end_all_running)


def _end_all_running() -> None:
    for engine in list(_running):
        engine.shutdown()
