"""The threads that run requests: made when one is needed, so that idle connections cost none and nothing queues."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from waitress.task import ThreadedTaskDispatcher


class Workers(ThreadedTaskDispatcher):
    """A thread for each running request, up to `most`; threads that are free are used again."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._growing = threading.Lock()
        self._started: list[threading.Thread] = []

    def start_new_thread(self, target: Callable[[int], None], thread_no: int) -> None:
        """Starts a thread that `shutdown` waits for."""
        thread = threading.Thread(target=target, name=f"http-{thread_no}", args=(thread_no,), daemon=True)
        self._started.append(thread)
        thread.start()

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

    def shutdown(self, cancel_pending: bool = True, timeout: float = 5) -> bool:
        """Ends the threads and waits for them, together for `timeout` seconds. One that let go of the application after
        the interpreter has begun to end would free device arrays then, which ends the process with an abort."""
        until = time.monotonic() + timeout
        cancelled: bool = super().shutdown(cancel_pending, timeout)
        for thread in self._started:
            thread.join(max(0.0, until - time.monotonic()))
        return cancelled
