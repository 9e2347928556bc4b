"""Formats with kernels of their own, in Triton's interpreter or on a GPU: a process of its own for test_formats.py.

    TRITON_INTERPRET=1 python -m tests.kernels.gpu.logic_formats sm_90 FORMAT ...
    python -m tests.kernels.gpu.logic_formats gpu FORMAT ...

Values are compared with float64 after the roundings that a format puts into its rows.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from bench.random_weights import random_weight
from dgpp.formats import Weight, format_named
from dgpp.formats.arrays import stacked
from dgpp.kernels.gpu import launch
from dgpp.kernels.linear import triton
from dgpp.kernels.linear.ranges import Ranges
from tests.kernels.gpu.contract import products64
from tests.kernels.gpu.formats import bound

RNG = np.random.default_rng(0)


def shape_of(format: str) -> tuple[int, int]:
    """A small (N, K), with a tile of outputs that is not full where the format allows."""
    if format.startswith("exl3"):
        return 256, 384
    return (72, 2048) if format == "bf12" else (72, 640)


def cuts_of(format: str, k: int) -> Ranges:
    """Leaves of different lengths; those of BF12 begin inside its blocks."""
    return ((0, 512), (512, 1300), (1300, k)) if format == "bf12" else ((0, 256), (256, k))


def rows_of(count: int, k: int, narrow: bool) -> jax.Array:
    """Rows of different sizes, if float16 holds them."""
    x = jnp.asarray(RNG.standard_normal((count, k)), jnp.float32)
    return (x if narrow else x.at[1].multiply(2.0**-60).at[2].multiply(2.0**60)).astype(jnp.bfloat16)


def one_of(w: Weight, layer: int) -> dict[str, np.ndarray]:
    """The arrays of one layer."""
    return {name: np.asarray(array[layer]) for name, array in w.arrays.items()}


def check(format: str, w: Weight, x: jax.Array, used: int) -> np.ndarray:
    """The product over all of K, which and whose leaves must be near float64, with padding of +0."""
    k = w.shape[1]
    leaves = cuts_of(format, k)
    whole = np.asarray(triton.linear(x, w, jnp.int32(1), jnp.int32(used)))
    parts = np.asarray(triton.linear_leaves(x, w, jnp.int32(1), jnp.int32(used), leaves))
    for found, ranges in ((whole[None], ((0, k),)), (parts, leaves)):
        wanted, size = products64(np.asarray(x), one_of(w, 1), w.shape, format, ranges)
        error = np.abs(found - wanted)[:, :used] / np.maximum(size[:, :used], np.finfo(np.float64).tiny)
        assert error.max() < bound(format, k), f"{format} {ranges}: error {error.max():.1e}"
        assert not found[:, used:].any(), f"{format}: padding is not zero"
        assert not np.signbit(found[:, used:]).any()
    return whole


def equal_at_every_count(format: str) -> None:
    """A row alone, and among others in another order.

    The interpreter's products of matrices are NumPy's, whose order depends on their sizes; so only integers, which are
    exact, are compared over more rows than one tile has.
    """
    if format.startswith("gptq"):  # outputs that fill their tiles are read in another way
        check(format, random_weight(format, 2, 64, 640), rows_of(3, 640, narrow=False), 2)
    w = random_weight(format, 2, *shape_of(format))
    exact = format.startswith("mixed346")
    x = rows_of(18 if exact else 15, w.shape[1], format.startswith("exl3"))
    whole = check(format, w, x, len(x) - 1)
    for rows in ([5], [3, 5, 0], list(range(len(x) - 2, -1, -1))):
        found = np.asarray(triton.linear(x[jnp.asarray(rows)], w, jnp.int32(1), jnp.int32(len(rows))))
        assert found.tobytes() == whole[rows].tobytes(), f"{format}: the bits differ among {len(rows)} rows"


def bf12_rows() -> None:
    """Rows with many escapes, raw ones, zeros, infinities and NaN; no escape and no raw row at all."""
    kind, (n, k) = format_named("bf12"), shape_of("bf12")
    values = RNG.standard_normal((2, n, k)).astype(np.float32)
    plain = [kind.encode(np.abs(one) + 1) for one in values]
    values[:, 3] = np.exp(RNG.uniform(-60, 60, (2, k)))
    values[:, 7] = 0
    values[:, 9, RNG.permutation(k)[:64]] = np.exp(RNG.uniform(-40, 20, 64))
    values[:, 11, :8] = 0
    values[1, 66] = np.exp(RNG.uniform(-60, 60, k))
    coded = [kind.encode(one) for one in values]
    for layers in (plain, coded):
        w = Weight({name: jnp.asarray(stacked([one[name] for one in layers])) for name in coded[0]}, "bf12", (n, k))
        assert (w.arrays["escapes"].shape[1] > 0) == (layers is coded)
        check("bf12", w, rows_of(3, k, narrow=False), 2)
    values[1, 5, 100], values[1, 5, 1500] = np.inf, -np.inf
    values[1, 8, 2], values[1, 6] = np.nan, np.inf
    coded = [kind.encode(one) for one in values]
    w = Weight({name: jnp.asarray(stacked([one[name] for one in coded])) for name in coded[0]}, "bf12", (n, k))
    x = jnp.abs(rows_of(2, k, narrow=True)) + 1
    found = np.asarray(triton.linear_leaves(x, w, jnp.int32(1), jnp.int32(2), cuts_of("bf12", k)))
    assert (found[0, :, 5] == np.inf).all()
    assert np.isfinite(found[1, :, 5]).all()
    assert (found[2, :, 5] == -np.inf).all()
    assert np.isnan(found[0, :, 8]).all()
    assert np.isfinite(found[1:, :, 8]).all()
    assert (found[..., 6] == np.inf).all()


def not_numbers(format: str) -> None:
    """A NaN or an infinity among the activations reaches every output of its row, and no other row."""
    w = random_weight(format, 2, *shape_of(format))
    x = rows_of(4, w.shape[1], narrow=True).at[1, 77].set(jnp.nan).at[2, 130].set(jnp.inf)
    found = np.asarray(triton.linear(x, w, jnp.int32(1), jnp.int32(4)))
    assert np.isnan(found[1]).all()
    assert not np.isfinite(found[2]).any()
    assert np.isfinite(found[[0, 3]]).all()


def main(architecture: str, *formats: str) -> None:
    """The command."""
    with ExitStack() as patches:
        for name, module in list(sys.modules.items()):
            if (
                launch.INTERPRETED
                and name.startswith("dgpp.")
                and getattr(module, "architecture", None) is launch.architecture
            ):
                patches.enter_context(mock.patch.object(module, "architecture", return_value=architecture))
        for format in formats:
            equal_at_every_count(format)
            if format == "bf12":
                bf12_rows()
            else:
                not_numbers(format)


if __name__ == "__main__":
    main(*sys.argv[1:])
