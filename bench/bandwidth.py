"""The memory's bandwidth, measured in the run that it is compared with.

Each thread works on its own part of a buffer far larger than the caches; NumPy drops the interpreter's lock meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

BUFFER_BYTES = 256 << 20


@dataclass(frozen=True)
class Bandwidth:
    """Seconds of reading a buffer of `nbytes` once, and of copying it (which moves twice as much)."""

    nbytes: int
    read_seconds: float
    copy_seconds: float

    @property
    def read_gbps(self) -> float:
        """1e9 bytes read per second."""
        return self.nbytes / self.read_seconds / 1e9

    @property
    def copy_gbps(self) -> float:
        """1e9 bytes read or written per second."""
        return 2 * self.nbytes / self.copy_seconds / 1e9


def measure(threads: int, nbytes: int = BUFFER_BYTES, repeats: int = 10) -> Bandwidth:
    """The best of `repeats` measurements on `threads` threads."""
    source = np.arange(nbytes // 4, dtype=np.int32)
    target = np.zeros_like(source)  # touched, so that no page is first mapped while the clock runs
    size = len(source) // threads
    parts = [slice(i * size, (i + 1) * size) for i in range(threads)]
    with ThreadPoolExecutor(threads) as pool:

        def best(work: Callable[[slice], object]) -> float:
            def once() -> float:
                started = time.perf_counter()
                list(pool.map(work, parts))
                return time.perf_counter() - started

            return min(once() for _ in range(repeats))

        return Bandwidth(
            nbytes=size * threads * source.itemsize,
            read_seconds=best(lambda part: source[part].max()),
            copy_seconds=best(lambda part: np.copyto(target[part], source[part])),
        )
