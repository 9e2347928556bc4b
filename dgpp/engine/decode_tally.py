"""What decode steps have looked like so far: their widths, and how long they took."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from dgpp.engine.request import STEP_EDGES, DecodeBatch


class DecodeTally:
    """Adds up the steps that had decoding rows. Not locked: whoever owns it holds a lock of its own."""

    def __init__(self) -> None:
        self._last_slots = self._last_active = self._padded = 0
        self._by_active: Counter[int] = Counter()
        self._durations = [0] * (len(STEP_EDGES) + 1)

    def add(self, active: int, used_rows: int, rows: int, seconds: float) -> None:
        """Counts a step in which `active` requests decoded and `used_rows` of its `rows` were not padding."""
        self._last_slots, self._last_active = rows, active
        self._padded += rows - used_rows
        self._by_active[active] += 1
        self._durations[bisect_left(STEP_EDGES, seconds)] += 1

    def snapshot(self) -> DecodeBatch:
        """The sums now."""
        return DecodeBatch(
            self._last_slots, self._last_active, self._padded, dict(self._by_active), tuple(self._durations)
        )
