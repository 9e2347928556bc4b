"""Turns without an engine: they say what a test hands them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dgpp.serve.turn import Failed, Step, new_id
from dgpp.text.events import CallArguments, CallClosed, CallOpened, Event, Finished, TextDelta

PROMPT_TOKENS = 21


class SpokenTurn:
    """A turn of one choice whose steps are given."""

    def __init__(self, steps: Sequence[Step | Failed | None], model: str) -> None:
        self.id = new_id("chatcmpl-")
        self.model = model
        self.created = 1
        self.prompt_tokens = PROMPT_TOKENS
        self.cached_tokens = 0
        self.cancelled = self.closed = False
        self._steps = steps

    def __len__(self) -> int:
        return 1

    def events(self) -> Iterator[Step | Failed | None]:
        try:
            yield from self._steps
        finally:
            self.close()

    def cancel(self) -> None:
        self.cancelled = True

    def close(self) -> None:
        self.closed = True


def steps(*events: Event | Failed | None) -> list[Step | Failed | None]:
    """One step for each event."""
    return [event if event is None or isinstance(event, Failed) else Step(0, (event,)) for event in events]


def thought(text: str) -> list[Event]:
    """Thinking, a character at a time."""
    return [TextDelta(character, "reasoning") for character in text]


def said(text: str) -> list[Event]:
    """Text, a character at a time."""
    return [TextDelta(character) for character in text]


def called(index: int, name: str, arguments: str, kind: str = "function", *, closed: bool = True) -> list[Event]:
    """A call whose arguments come a character at a time."""
    opened = CallOpened(index, name, "custom" if kind == "custom" else "function")
    end: list[Event] = [CallClosed(index)] if closed else []
    return [opened, *(CallArguments(index, character) for character in arguments), *end]


def finished(reason: str = "stop", tokens: int = 9, reasoning: int = 0) -> Finished:
    """The last event."""
    assert reason in ("stop", "length", "tool_calls")
    return Finished(reason, tokens, reasoning)  # type: ignore[arg-type]
