"""One accepted request: what its choices generate, as events that streamed and whole answers share."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dgpp.engine.request import Event as EngineEvent
from dgpp.engine.request import FailEvent, FinishEvent, Handle, TokenEvent
from dgpp.serve.errors import BY_CODE, ENGINE_STATES, ApiError
from dgpp.serve.merge import merged
from dgpp.serve.metrics.telemetry import ChoiceTimes, Telemetry
from dgpp.text.events import CallClosed, Event, Malformed
from dgpp.text.pipeline import Pipeline

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.25
"""How long `Turn.events` waits before it says that nothing happened: the accuracy of keep-alive comments."""


@dataclass(frozen=True)
class Step:
    """What one more token, or its end, added to one choice; `events` may be empty."""

    index: int
    events: tuple[Event, ...]


@dataclass(frozen=True)
class Failed:
    """The last event of a turn that the engine could not bring to its end."""

    error: ApiError


@dataclass
class _Choice:
    handle: Handle
    pipeline: Pipeline
    times: ChoiceTimes
    ended: bool = False


class Turn:
    """The choices of one request, interleaved as they are generated. `close` must be called when nobody reads on."""

    def __init__(
        self,
        id: str,
        model: str,
        prompt_tokens: int,
        handles: Sequence[Handle],
        pipelines: Sequence[Pipeline],
        telemetry: Telemetry,
        arrived: float,
    ) -> None:
        self.id = id
        self.model = model
        self.created = int(time.time())
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = 0  # of the prompt, those that need not be computed again
        self._telemetry = telemetry
        self._choices = [
            _Choice(handle, pipeline, ChoiceTimes(telemetry, arrived, prompt_tokens))
            for handle, pipeline in zip(handles, pipelines, strict=True)
        ]
        self._failure: ApiError | None = None
        self._cancelled = False
        self._closed = False

    def __len__(self) -> int:
        """The number of choices."""
        return len(self._choices)

    def events(self) -> Iterator[Step | Failed | None]:
        """Steps until every choice has ended or the turn failed; None now and then while nothing happens."""
        try:
            for index, event in merged([choice.handle for choice in self._choices], TICK_SECONDS):
                if event is None:
                    yield None
                elif not self._choices[index].ended:
                    yield Step(index, tuple(self._take(self._choices[index], event)))
                if all(choice.ended for choice in self._choices):
                    break
            if self._failure is not None:
                yield Failed(self._failure)
        finally:
            self.close()

    def cancel(self) -> None:
        """Ends the generation because the client is gone. From any thread; does not block."""
        for choice in self._choices:
            choice.handle.cancel()

    def close(self) -> None:
        """Ends what still runs and counts the request. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for choice in self._choices:
            if not choice.ended:
                choice.handle.cancel()
                self._end(choice, "cancelled")
        outcome = "requests_finished"
        if self._failure is not None:
            outcome = "requests_failed"
        elif self._cancelled:
            outcome = "requests_cancelled"
        self._telemetry.count(outcome)

    def _take(self, choice: _Choice, event: EngineEvent) -> list[Event]:
        match event:
            case TokenEvent():
                choice.times.token(choice.handle.admitted)
                events = self._counted(choice.pipeline.feed(event.token, event.logprobs))
                if choice.pipeline.stopped:
                    choice.handle.stop()
                    self._end(choice, "stop")
                    events += choice.pipeline.finish("stop")
                return events
            case FinishEvent():
                self._end(choice, event.reason)
                # After another choice failed the answer is an error, which no finish may follow.
                if self._failure:
                    return choice.pipeline.flush()
                return self._counted(choice.pipeline.finish(event.reason))
            case FailEvent():
                self._end(choice, "none")
                if self._failure is None:
                    level = logging.ERROR if event.code == "engine_failure" else logging.INFO
                    logger.log(level, "request %s: %s: %s", self.id, event.code, event.message)
                    self._failure = ApiError(BY_CODE[event.code], ENGINE_STATES[event.code])
                    self.cancel()
                return choice.pipeline.flush()

    def _counted(self, events: list[Event]) -> list[Event]:
        for event in events:
            if isinstance(event, CallClosed):
                self._telemetry.count("tool_calls_out")
            elif isinstance(event, Malformed):
                self._telemetry.count("tool_calls_malformed")
                logger.warning(
                    "request %s: a tool call that cannot be read is shown as text: %s", self.id, event.reason
                )
        return events

    def _end(self, choice: _Choice, reason: str) -> None:
        choice.ended = True
        choice.times.end(reason)
        self._cancelled |= reason == "cancelled"


def new_id(prefix: str) -> str:
    """A response id: the prefix and 16 hexadecimal digits."""
    return prefix + secrets.token_hex(8)
