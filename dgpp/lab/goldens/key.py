"""The key of a pinned golden: what its bits may depend on, and the versions that are recorded beside it."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

import jax


def key(kernels: str | None = None) -> str:
    """The backend and the minor version of JAX, e.g. "cpu-x86-fma/jax-0.10"; of kernels "triton" that of Triton too:
    "sm_90/jax-0.11/triton-3.6"."""
    packages = ("jax", "triton") if kernels == "triton" else ("jax",)
    return "/".join([backend(), *(f"{name}-{'.'.join(version(name).split('.')[:2])}" for name in packages)])


def versions(kernels: str | None = None) -> dict[str, str]:
    """The versions of what computes."""
    found = {name: version(name) for name in ("jax", "jaxlib", "numpy", "ml_dtypes")}
    if kernels == "triton":
        found["triton"] = version("triton")
    return found


def backend() -> str:
    """The processor that values are pinned to: "sm_90", "cpu-x86-fma", ..."""
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
