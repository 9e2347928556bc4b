"""The ops of the forward, each in a folder of its own with its order as a contract, and the choice between kinds.

"reference" is plain JAX and runs everywhere. "cpu" is native code, generated at first use for this machine: Linux or
macOS, on x86-64 with AVX2 and FMA or on aarch64. They give the same bits; the choice is a name, never a timing.

The native linear reads BF16. Weights of the other formats, and experts of every format, run as the reference does under
either name, which decodes them block by block inside the product: right, and slow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax


@dataclass(frozen=True)
class Kernels:
    """One implementation of every op; the packages `linear`, `experts` and `attention` say what each op means."""

    name: str
    linear: Callable[..., jax.Array]
    linear_leaves: Callable[..., jax.Array]
    grouped_linear: Callable[..., jax.Array]
    grouped_linear_leaves: Callable[..., jax.Array]
    attention: Callable[..., tuple[jax.Array, jax.Array, jax.Array]]


def _reference() -> Kernels:
    from dgpp.kernels.attention.reference import attention
    from dgpp.kernels.experts.reference import grouped_linear, grouped_linear_leaves
    from dgpp.kernels.linear.reference import linear, linear_leaves

    return Kernels("reference", linear, linear_leaves, grouped_linear, grouped_linear_leaves, attention)


def _cpu() -> Kernels:
    from dgpp.kernels.attention.cpu import attention
    from dgpp.kernels.experts.reference import grouped_linear, grouped_linear_leaves
    from dgpp.kernels.linear.cpu import linear, linear_leaves

    return Kernels("cpu", linear, linear_leaves, grouped_linear, grouped_linear_leaves, attention)


KINDS: dict[str, Callable[[], Kernels]] = {"reference": _reference, "cpu": _cpu}


def select(name: str) -> Kernels:
    """The kernels called `name`. Raises ValueError with the known names for any other.

    Nothing is compiled here; the first trace of a "cpu" op raises RuntimeError on a machine without a target.
    """
    if name not in KINDS:
        raise ValueError(f"unknown kernels {name!r}; known are: {', '.join(KINDS)}")
    return KINDS[name]()


def default() -> Kernels:
    """The kernels to use where nothing is chosen: "cpu" if this machine has a target for it, else "reference"."""
    from dgpp.kernels.native.target import host_target

    return select("reference" if host_target() is None else "cpu")
