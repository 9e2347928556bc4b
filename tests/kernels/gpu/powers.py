"""Weights under powers of two that lie as far apart as bytes can, in Triton's interpreter: run by test_powers.py.

TRITON_INTERPRET=1 python -m tests.kernels.gpu.powers sm_121
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.formats import Weight, format_named
from dgpp.kernels.linear import triton
from tests.kernels.gpu.logic import on

RNG = np.random.default_rng(1)
BLUR = {"mxfp4": 2.0**-34, "mxfp8": 448 * 2.0**-32, "fp8_block32_e8m0": 448 * 2.0**-32}
"""By how much a weight may be off, in its group's largest scale: see `dgpp.kernels.linear.triton_product`."""
N, K, ROWS, GROUP = 64, 320, 5, 128


def weight(format: str, scales: np.ndarray) -> Weight:
    """One matrix [N, K] of random codes that are no NaN, under these bytes."""
    arrays = {}
    for name, packed in format_named(format).arrays((N, K)).items():
        codes = RNG.integers(0, 256, packed.shape, np.uint8)
        values = scales if name == "scale" else codes & (0xF7 if packed.tag == "F8_E4M3" else 0xFF)
        arrays[name] = jnp.asarray(values.astype(packed.dtype))
    return Weight(arrays, format, (N, K))


def check(format: str) -> None:
    """Bytes from 0 to 200 in any order, whole groups of byte 0, and a byte 255."""
    kind, zero, used = format_named(format), jnp.int32(0), jnp.int32(ROWS)
    x = jnp.asarray(RNG.standard_normal((ROWS, K)), jnp.float32).astype(jnp.bfloat16)
    exact = np.asarray(x.astype(jnp.float32)).astype(np.float64)
    shape = kind.arrays((N, K))["scale"].shape
    spread = RNG.integers(0, 201, shape, np.uint8)
    spread[0] = 0
    close = RNG.integers(100, 123, shape, np.uint8)
    for scales in (spread, close):
        w = weight(format, scales)
        values = kind.decode64({name: np.asarray(array) for name, array in w.arrays.items()}, (N, K))
        per_row = np.repeat(np.ldexp(1.0, scales.astype(int) - 127), -(-N // shape[0]), 0)[:N]
        per_row = np.repeat(per_row, 32, 1)
        largest = np.concatenate(
            [np.broadcast_to(g.max(1, keepdims=True), g.shape) for g in np.split(per_row, range(GROUP, K, GROUP), 1)], 1
        )
        ranges = ((0, 128), (128, 320))
        found = np.asarray(triton.linear_leaves(x, w, zero, used, ranges))
        for y, (a, b) in zip(found, ranges, strict=True):
            wanted, size = exact[:, a:b] @ values[:, a:b].T, np.abs(exact[:, a:b]) @ np.abs(values[:, a:b]).T
            allowed = 2.0**-20 * size + BLUR[format] * (np.abs(exact[:, a:b]) @ largest[:, a:b].T)
            # XLA's threads count subnormal numbers as zero, and 2^-127 is one.
            allowed += np.abs(exact[:, a:b]) @ (np.abs(values) * (per_row == 2.0**-127))[:, a:b].T
            assert (np.abs(y - wanted) <= allowed).all(), f"{format}: {(np.abs(y - wanted) / allowed).max()}"
    scales = close.copy()
    scales[1, 3] = 255
    found = np.asarray(triton.linear(x, weight(format, scales), zero, used))
    bad = np.isnan(found).all(0)
    each = -(-N // shape[0])
    assert bad[each : 2 * each].all()
    assert bad.sum() == each
    assert not np.isnan(found[:, ~bad]).any()


def main(architecture: str) -> None:
    """The command."""
    assert jax.default_backend() == "cpu"
    with on(architecture):
        for format in BLUR:
            check(format)


if __name__ == "__main__":
    main(*sys.argv[1:])
