"""Settings that must stand before JAX is imported, for every test."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import settings

# Four virtual devices for the mesh worlds. A flag set by the caller wins.
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = (os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4").strip()
# Tiny programs are compiled once and shared by all workers and later runs.
CACHE = Path(__file__).resolve().parent.parent / ".cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


# Two busy cores compile and share time: how long one example takes says nothing.
settings.register_profile("dgpp", deadline=None)
settings.load_profile("dgpp")


def pytest_configure() -> None:
    """Fast-math would let the compiler reorder sums, and every bitwise test would be about something else."""
    assert "xla_cpu_enable_fast_math=true" not in os.environ["XLA_FLAGS"]
