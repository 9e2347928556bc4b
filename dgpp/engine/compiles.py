"""How many programs XLA has compiled in this process: an engine must not compile anything once it is ready."""

from __future__ import annotations

import threading

import jax

_lock = threading.Lock()
_count = 0
_listening = False


def _on_duration(event: str, duration_secs: float, **_: str | int) -> None:
    global _count
    if event == "/jax/core/compile/backend_compile_duration":
        with _lock:
            _count += 1


def count() -> int:
    """Programs compiled since the first call of this function."""
    global _listening
    with _lock:
        if not _listening:
            jax.monitoring.register_event_duration_secs_listener(_on_duration)
            _listening = True
        return _count
