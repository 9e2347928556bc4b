"""The way of a request's events from an engine's thread to whoever waits for them."""

from __future__ import annotations

import queue
from collections.abc import Iterator

from dgpp.engine.request import Event, TokenEvent


class Mailbox:
    """The events of one request, put by the engine and taken by its owner. Every handle of an engine is one."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.admitted: float | None = None  # time.monotonic() when the request got its slot; written before any event

    def put(self, event: Event) -> None:
        """Hands one event to the owner (called by the engine's thread)."""
        self._events.put(event)

    def events(self, timeout: float | None = None) -> Iterator[Event | None]:
        """Events in order up to the last; None whenever `timeout` seconds pass without one."""
        while True:
            try:
                event = self._events.get(timeout=timeout)
            except queue.Empty:
                yield None
                continue
            yield event
            if not isinstance(event, TokenEvent):
                return
