"""Products of matrices that read the same rows, some of which share a launch: each as it is alone.

    python -m tests.kernels.gpu.beside

On a CUDA device the bits are compared; in Triton's interpreter (TRITON_INTERPRET=1) numbers within rounding, since
NumPy adds in another order for steps of other sizes.
"""

from __future__ import annotations

import sys
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.formats import Weight, format_named
from dgpp.kernels.gpu.launch import INTERPRETED
from dgpp.kernels.linear import triton

K, LAYERS = 576, 2
MAIN = ("fp8_block128_bf16", "fp8_channel", "nvfp4_divisor")
SMALL = ((48, 48), (200, 1), (70,), (300, 300))
"""Outputs of matrices of bfloat16: two that join, one that is a single output, one alone, and two that are too many."""


def encoded(format: str, n: int, seed: int) -> Weight:
    """A stack of random matrices."""
    rng, kind = np.random.default_rng(seed), format_named(format)
    stack = [kind.load(kind.encode(rng.standard_normal((n, K)).astype(np.float32)), (n, K)) for _ in range(LAYERS)]
    return Weight({name: jnp.asarray(np.stack([one[name] for one in stack])) for name in stack[0]}, format, (n, K))


def trouble_of(format: str, small: tuple[int, ...], rows: int) -> list[str]:
    """What differs for a few or many rows, of which one is padding."""
    rng, layer, used = np.random.default_rng(rows), jnp.int32(1), jnp.int32(max(1, rows - 1))
    x = jnp.asarray(rng.standard_normal((rows, K)), jnp.float32).astype(jnp.bfloat16)
    first, *others = (encoded("bf16", n, i) for i, n in enumerate(small))
    ws = [first, encoded(format, 96, 7), encoded(format, 33, 8), *others]
    launches = []
    real = triton.launch

    def counted(*arguments: object, **options: object) -> object:
        launches.append(arguments[0])
        return real(*arguments, **options)  # type: ignore[arg-type]

    with mock.patch.object(triton, "launch", counted):
        found = jax.jit(lambda x, ws: triton.products(x, ws, layer, used))(x, ws)
    joined = rows <= 16 and sum(small) <= triton.FEW_OUTPUTS
    trouble = [] if len(launches) == (1 if joined else 2) else [f"{len(launches)} launches"]
    for i, (w, y) in enumerate(zip(ws, found, strict=True)):
        alone = jax.jit(lambda x, w: triton.linear_parts(x, w, layer, used))(x, w)
        equal = np.allclose(y, alone, rtol=0, atol=1e-3) if INTERPRETED else np.array_equal(y, alone)
        if y.shape != alone.shape or not equal:
            trouble.append(f"matrix {i}, {w.format} {w.shape}")
    return trouble


def main() -> int:
    """The command."""
    good = True
    cases = [(MAIN[0], small, 3) for small in SMALL] if INTERPRETED else []
    cases += (
        [] if INTERPRETED else [(format, small, rows) for format in MAIN for small in SMALL for rows in (1, 16, 17)]
    )
    for case in cases:
        trouble = trouble_of(*case)
        print("FAIL" if trouble else "ok  ", *case, "; ".join(trouble), flush=True)
        good &= not trouble
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
