"""On a GPU: gated_delta, whose bits are those of the reference.

    python -m tests.kernels.gpu.bits_state

Prints a line a case and exits with 1 when one fails.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.kernels.recurrence import DeltaState
from dgpp.kernels.recurrence.reference import gated_delta as reference_delta
from dgpp.kernels.recurrence.triton import gated_delta


def same(a: jax.Array, b: jax.Array) -> bool:
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def delta_arguments(per_key: bool, dk: int, dv: int, slots: int = 4) -> tuple[Any, ...]:
    """Segments of three slots with and without replays, committing and not, and a padding row."""
    keys, values, width = 2, 4, 3
    rng = np.random.default_rng(0)

    def noise(*shape: int, scale: float = 1.0) -> np.ndarray:
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    decays = dk if per_key else 1
    rings = (noise(2, slots, width, keys, dk, scale=0.1), noise(2, slots, width, values, dv).astype(jnp.bfloat16))
    gates = -np.abs(noise(2, slots, width, values, decays + 1, scale=0.3))
    state = DeltaState(noise(2, slots, values, dk, dv), *rings, gates)
    rows = 9
    g = -np.abs(noise(rows, values, decays, scale=0.3))
    inputs = (
        noise(rows, keys, dk, scale=0.1),
        noise(rows, keys, dk, scale=0.1),
        noise(rows, values, dv).astype(jnp.bfloat16),
        g if per_key else g[..., 0],
        np.abs(noise(rows, values, scale=0.5)),
    )
    layout = (
        np.array([5, 6, 7, 9, 0, 1, 2, 3, -1], np.int32),
        np.array([2, 2, 2, 0, 3, 3, 3, 3, -1], np.int32),
        np.array([1, 0, 0, 0, 1, 1, 1, 1, 0], bool),
        np.array([2, 2, 2, 3, 7, 7, 7, 7, 8], np.int32),
        np.array([2, 0, 1, *[0] * (slots - 3)], np.int32),
    )
    tail = (np.int32(8), np.array([0, 0, 1, 1], np.int32), np.int32(0))
    return jax.tree.map(jnp.asarray, (*inputs, state, np.int32(1), *layout, *tail))


def delta_case(per_key: bool, slots: int = 4) -> list[str]:
    """The bits of the reference on a CPU."""
    arguments = delta_arguments(per_key, dk=128, dv=128, slots=slots)
    found = jax.jit(gated_delta)(*arguments)
    with jax.default_device(jax.devices("cpu")[0]):
        wanted = jax.jit(reference_delta)(*jax.device_put(arguments, jax.devices("cpu")[0]))
    trouble = []
    (o, state), (wanted_o, wanted_state) = found, wanted
    found, wanted = (o[:-1], state), (wanted_o[:-1], wanted_state)  # without the padding row
    for name, a, b in zip(("o", "s", "k", "v", "gates"), jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        if not same(a, b):
            a, b = (np.asarray(x, np.float32) for x in (a, b))
            trouble.append(f"{name}: {(a != b).mean():.1%} differ from the reference, by {np.abs(a - b).max():.1e}")
    return trouble


def main() -> int:
    """The command."""
    cases = {
        "gated_delta": partial(delta_case, False),
        "gated_delta, a decay per key channel": partial(delta_case, True),
        "gated_delta, fewer rows than slots": partial(delta_case, False, 12),
    }
    good = True
    for name, case in cases.items():
        try:
            trouble = case()
        except Exception as error:
            trouble = [f"{type(error).__name__}: {str(error)[:400]}"]
        print("FAIL" if trouble else "ok  ", name, "; ".join(trouble), flush=True)
        good &= not trouble
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
