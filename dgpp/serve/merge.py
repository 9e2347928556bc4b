"""The events of several handles in the order they happen."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence

from dgpp.engine.request import Event, Handle, TokenEvent


def merged(handles: Sequence[Handle], timeout: float) -> Iterator[tuple[int, Event | None]]:
    """(index of the handle, event) of all `handles` until each has ended; (0, None) whenever `timeout` seconds pass
    without an event."""
    if len(handles) == 1:
        for event in handles[0].events(timeout):
            yield 0, event
        return
    # A handle can only be waited on alone, so each gets a thread; it ends with the handle.
    events: queue.SimpleQueue[tuple[int, Event]] = queue.SimpleQueue()
    for index, handle in enumerate(handles):
        threading.Thread(target=_pump, args=(index, handle, events), name=f"choice-{index}", daemon=True).start()
    open_handles = len(handles)
    while open_handles:
        try:
            index, event = events.get(timeout=timeout)
        except queue.Empty:
            yield 0, None
            continue
        open_handles -= not isinstance(event, TokenEvent)
        yield index, event


def _pump(index: int, handle: Handle, events: queue.SimpleQueue[tuple[int, Event]]) -> None:
    for event in handle.events():
        if event is not None:
            events.put((index, event))
