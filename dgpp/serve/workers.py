"""The threads that run requests: made when one is needed, so that idle connections cost none and nothing queues."""

from __future__ import annotations

import threading
from typing import Any

from waitress.task import ThreadedTaskDispatcher


class Workers(ThreadedTaskDispatcher):
    """A thread for each running request, up to `most`; threads that are free are used again."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._growing = threading.Lock()

    def add_task(self, task: Any) -> None:
        """Runs `task.service()` in a thread."""
        with self._growing:
            with self.lock:
                self.queue.append(task)
                self.queue_cv.notify()
                running = len(self.threads) - self.stop_count
                short = running - self.active_count < len(self.queue)
            if short and running < self._most:
                self.set_thread_count(running + 1)
