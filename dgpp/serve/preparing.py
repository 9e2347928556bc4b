"""How many prompts are rendered and tokenised at once (spec/api.md §6.9).

That work holds Python's lock. Where every request did it as it came, a burst of long prompts would keep running streams
from their events; a few at a time leave each of them its turn.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dgpp.serve.errors import OVERLOADED, ApiError

AT_ONCE = 2
WAITING = 256


class Preparing:
    """The places for requests that are being prepared: `at_once` of them work, `waiting` more may wait."""

    def __init__(self, at_once: int = AT_ONCE, waiting: int = WAITING) -> None:
        self._places = threading.Semaphore(at_once)
        self._most = at_once + waiting
        self._lock = threading.Lock()
        self._inside = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place, once there is one. Raises ApiError 503 when too many wait already."""
        with self._lock:
            if self._inside >= self._most:
                raise ApiError(OVERLOADED, "Too many requests are being prepared; try again later.")
            self._inside += 1
        try:
            with self._places:
                yield
        finally:
            with self._lock:
                self._inside -= 1
