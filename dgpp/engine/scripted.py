"""An engine without a model: it emits the tokens a script names, so that everything above an engine can be tested."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from dgpp.engine.allowed import Allowed, ConstraintError
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
    TokenLogprobs,
    continuations,
)

Script = Sequence[int | FailEvent]
"""The ids one request gets, in order; a FailEvent ends it as a failing engine would. At the end of the script the
request gets an eos id if it has one (the script starts over under `ignore_eos`), else it ends with reason "eos".
An id that the request's constraint does not allow is replaced by the first that it does, as if that were the next
likeliest."""

BLOCK_TOKENS = 16
INFO = EngineInfo(vocab_size=512, position_ceiling=256, pool_tokens=4096, max_concurrency=8, queue_limit=64)


class ScriptedHandle(Mailbox):
    """A request of a ScriptedEngine; see `dgpp.engine.request.Handle`."""

    def __init__(self, engine: ScriptedEngine, request: Request, script: Script) -> None:
        super().__init__()
        self.request = request
        self.script = script
        self.emitted = 0
        self.allowed = Allowed(request, engine.info.vocab_size) if Allowed.needed(request) else None
        self.wanted: FinishReason | None = None  # what its owner asked for: "stop" or "cancelled"
        self._engine = engine

    @property
    def blocks(self) -> int:
        """Pool blocks reserved while the request is in a slot."""
        return -(-(len(self.request.prompt) + self.request.max_tokens) // BLOCK_TOKENS)

    def stop(self) -> None:
        """Ends the request at the next step with reason "stop"."""
        self._engine._end(self, "stop")

    def cancel(self) -> None:
        """Ends the request at the next step with reason "cancelled"."""
        self._engine._end(self, "cancelled")


@dataclass
class _Counters:
    """What only grows; the rest of EngineStats is counted live."""

    requests_total: int = 0
    requests_shed: int = 0
    requests_cancelled: int = 0
    requests_failed: int = 0
    finished: dict[str, int] = field(default_factory=dict)
    tokens_generated: int = 0
    prompts_prefilled: int = 0
    prompt_tokens: int = 0
    prompt_tokens_computed: int = 0
    decode_steps: int = 0
    decode_rows: int = 0
    prefill_ms: float = 0.0
    prefill_request_ms: float = 0.0
    step_ms: float = 0.0


class ScriptedEngine:
    """An engine that emits scripts; see `dgpp.engine.request.Engine`.

    `script` is the ids of every request, or a function of the request and its index in its group. `hold` keeps
    requests in the queue's next stage ("queue", "prefill" or "decode") until `release`; cancels pass all the same.
    A step emits one token of every live request and sleeps `step_seconds`.
    """

    def __init__(
        self,
        script: Script | Callable[[Request, int], Script],
        *,
        info: EngineInfo = INFO,
        step_seconds: float = 0.0,
        hold: Sequence[str] = (),
    ) -> None:
        self._info = info
        self._script: Callable[[Request, int], Script] = script if callable(script) else lambda request, index: script
        self._step_seconds = step_seconds
        self._held = set(hold)
        self._lock = threading.Condition()
        self._queued: list[ScriptedHandle] = []
        self._prefilling: list[ScriptedHandle] = []
        self._active: list[ScriptedHandle] = []
        self._counters = _Counters()
        self._decode = DecodeTally()
        self._stopped: FailEvent | None = None
        self.requests: list[Request] = []  # every accepted request, for assertions
        self._thread = threading.Thread(target=self._run, name="scripted-engine", daemon=True)
        self._thread.start()

    @property
    def info(self) -> EngineInfo:
        """Limits."""
        return self._info

    def submit(self, request: Request, *, count: int = 1) -> list[Handle]:
        """Accepts `count` continuations of one prompt as a group, or none of them."""
        total = len(request.prompt) + request.max_tokens
        with self._lock:
            if self._stopped is not None:
                refusal = EngineFailed if self._stopped.code == "engine_failure" else ShuttingDown
                raise refusal(self._stopped.message)
            if total > self._info.context_limit:
                raise ContextLengthExceeded(f"{len(request.prompt)} prompt tokens plus {request.max_tokens} exceed it")
            if self._info.queue_limit and len(self._queued) + count > self._info.queue_limit:
                self._counters.requests_shed += count
                raise Overloaded("the queue is full")
            handles: list[ScriptedHandle] = []
            for index, one in enumerate(continuations(request, count)):
                self.requests.append(one)
                handles.append(ScriptedHandle(self, one, self._script(one, index)))
            self._counters.requests_total += count
            self._queued += handles
            self._lock.notify_all()
        return list(handles)

    def stats(self) -> EngineStats:
        """The counters now."""
        with self._lock:
            in_slots = self._prefilling + self._active
            live = self._queued + in_slots
            stopped = self._stopped
            now = time.monotonic()
            return EngineStats(
                active=len(self._active),
                queued=len(self._queued),
                prefilling=len(self._prefilling),
                pool_blocks_total=self._info.pool_tokens // BLOCK_TOKENS,
                pool_blocks_in_use=sum(handle.blocks for handle in in_slots),
                failed=stopped.message if stopped and stopped.code == "engine_failure" else None,
                pending_cancellations=sum(handle.wanted is not None for handle in live),
                record_tokens=sum(len(handle.request.prompt) + handle.emitted for handle in live),
                decode=self._decode.snapshot(),
                prefills=tuple(
                    PrefillProgress(0, slot, len(handle.request.prompt), 0, 1e3 * (now - (handle.admitted or now)))
                    for slot, handle in enumerate(self._prefilling)
                ),
                **{**vars(self._counters), "finished": dict(self._counters.finished)},
            )

    def hold(self, *stages: str) -> None:
        """Keeps requests from being taken out of the "queue", from finishing "prefill", or from "decode" steps."""
        with self._lock:
            self._held |= set(stages)

    def release(self) -> None:
        """Lets everything go on."""
        with self._lock:
            self._held.clear()
            self._lock.notify_all()

    def fail(self, message: str) -> None:
        """Stops as an engine does after an error: live requests end with `engine_failure`, new ones are refused."""
        self._stop(FailEvent("engine_failure", message))

    def shutdown(self, timeout: float = 30.0) -> None:
        """Ends live requests with `server_shutdown`, refuses new ones and joins the thread."""
        self._stop(FailEvent("server_shutdown", "the server is stopping"))
        self._thread.join(timeout)

    def _stop(self, event: FailEvent) -> None:
        with self._lock:
            self._stopped = self._stopped or event
            for live in (self._queued, self._prefilling, self._active):
                for handle in live:
                    handle.put(event)
                    self._counters.requests_failed += 1
                live.clear()
            self._lock.notify_all()

    def _end(self, handle: ScriptedHandle, reason: FinishReason) -> None:
        with self._lock:
            handle.wanted = handle.wanted or reason
            self._lock.notify_all()

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._stopped is not None or self._step())
                if self._stopped is not None:
                    return
            time.sleep(self._step_seconds)

    def _step(self) -> bool:
        """One scheduler pass under the lock; returns whether anything happened."""
        started = time.perf_counter()
        moved = self._retire()
        while "queue" not in self._held and self._queued and self._has_slot():
            self._prefilling.append(self._queued.pop(0))
            self._prefilling[-1].admitted = time.monotonic()
            moved = True
        if "prefill" not in self._held and self._prefilling:
            for handle in self._prefilling:
                self._counters.prompts_prefilled += 1
                self._counters.prompt_tokens += len(handle.request.prompt)
                self._counters.prompt_tokens_computed += len(handle.request.prompt)
                self._counters.prefill_request_ms += 1e3 * (time.monotonic() - (handle.admitted or 0.0))
            self._active += self._prefilling
            self._prefilling = []
            self._counters.prefill_ms += 1e3 * (time.perf_counter() - started)
            moved = True
        if "decode" not in self._held and self._active:
            self._counters.decode_steps += 1
            self._counters.decode_rows += (active := len(self._active))
            self._active = [handle for handle in self._active if self._emit(handle)]
            seconds = self._step_seconds + time.perf_counter() - started
            self._counters.step_ms += 1e3 * seconds
            self._decode.add(active, active, active, seconds)
            moved = True
        return moved

    def _has_slot(self) -> bool:
        return len(self._prefilling) + len(self._active) < self._info.max_concurrency

    def _retire(self) -> bool:
        """Ends the requests whose owners asked for it, wherever they are."""
        retired = False
        for live in (self._queued, self._prefilling, self._active):
            for handle in [handle for handle in live if handle.wanted is not None]:
                live.remove(handle)
                self._finish(handle, handle.wanted or "cancelled")
                retired = True
        return retired

    def _finish(self, handle: ScriptedHandle, reason: FinishReason) -> None:
        self._counters.finished[reason] = self._counters.finished.get(reason, 0) + 1
        self._counters.requests_cancelled += reason == "cancelled"
        handle.put(FinishEvent(reason))

    def _emit(self, handle: ScriptedHandle) -> bool:
        """Emits the next token of a request; returns whether the request lives on."""
        request, script = handle.request, handle.script
        ended = handle.emitted >= len(script)
        if ended and not request.eos:
            self._finish(handle, "eos")
            return False
        if ended and not (request.ignore_eos and script):
            item: int | FailEvent = min(request.eos)
        else:
            item = script[handle.emitted % len(script)]
        if not isinstance(item, FailEvent):
            item = _constrained(handle, item)
        if isinstance(item, FailEvent):
            self._counters.requests_failed += 1
            handle.put(item)
            return False
        handle.emitted += 1
        self._counters.tokens_generated += 1
        handle.put(TokenEvent(item, self._logprobs(request, item)))
        if item in request.eos and not request.ignore_eos:
            self._finish(handle, "eos")
            return False
        if handle.emitted >= request.max_tokens:
            self._finish(handle, "length")
            return False
        return True

    def _logprobs(self, request: Request, token: int) -> TokenLogprobs | None:
        """The emitted token at -0.25, then the ids after it, each one nat less likely."""
        wanted = request.sampling.logprobs
        if wanted is None:
            return None
        ids = [(token + offset) % self._info.vocab_size for offset in range(wanted)]
        return TokenLogprobs(-0.25, tuple((id, -0.25 - offset) for offset, id in enumerate(ids)))


def _constrained(handle: ScriptedHandle, token: int) -> int | FailEvent:
    """`token`, or what the request may be given in its place."""
    if handle.allowed is None:
        return token
    try:
        mask = handle.allowed.mask()
        if mask is not None and not mask[token]:
            token = int(np.argmax(mask))
        handle.allowed.accept(token)
    except ConstraintError as error:
        return FailEvent("constraint_failed", f"{error}: {error.__cause__}")
    return token
