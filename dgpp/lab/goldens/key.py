"""The key of a pinned golden: what its bits may depend on, and the versions that are recorded beside it."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

import jax


def key() -> str:
    """The backend and the minor version of JAX, e.g. "cpu-x86-fma/jax-0.10"."""
    minor = ".".join(version("jax").split(".")[:2])
    return f"{_backend()}/jax-{minor}"


def versions() -> dict[str, str]:
    """The versions of what computes."""
    return {name: version(name) for name in ("jax", "jaxlib", "numpy", "ml_dtypes")}


def _backend() -> str:
    device = jax.devices()[0]
    if device.platform != "cpu":
        return "sm_" + str(device.compute_capability).replace(".", "")
    machine = platform.machine().lower()
    if machine in ("arm64", "aarch64"):
        return "cpu-aarch64"
    if machine in ("x86_64", "amd64"):
        return "cpu-x86-fma" if _has_fma() else "cpu-x86"
    return f"cpu-{machine}"


def _has_fma() -> bool:
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return True  # x86 machines without /proc are Macs, which all have it
    return any(line.startswith("flags") and " fma " in f"{line} " for line in path.read_text().splitlines())
