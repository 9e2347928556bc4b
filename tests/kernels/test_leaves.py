"""The leaves of a row-parallel product: how they are stored, added, and added by the norm that reads the stream."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from dgpp.formats import Weight
from dgpp.kernels import select
from dgpp.kernels.leaves import folded
from dgpp.kernels.rows import Rows
from dgpp.kernels.stored import stored_as
from dgpp.layers.residual import Residual, normed_stream, settled
from tests.kernels.same import assert_same_bits

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)
R, D, K = 5, 48, 64
RANGES = tuple((16 * i, 16 * (i + 1)) for i in range(4))


def numbers(*shape: int, dtype: Any = BF16) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def numpy_fold(leaves: np.ndarray) -> np.ndarray:
    q0, q1, q2, q3 = leaves.astype(BF16).astype(np.float32)
    return ((q0 + q1) + (q2 + q3)).astype(BF16)


def plain(values: np.ndarray) -> Weight:
    return Weight({"values": jnp.asarray(values)}, "bf16", values.shape)


def test_leaves_in_float32_are_each_rounded_before_they_are_added() -> None:
    leaves = numbers(4, R, D, dtype=np.float32)
    assert_same_bits(np.asarray(jax.jit(folded)(leaves)), numpy_fold(leaves))
    assert not np.array_equal(numpy_fold(leaves), leaves.sum(0).astype(BF16))


def test_in_float32_mode_nothing_is_rounded() -> None:
    leaves = numbers(4, R, D, dtype=np.float32)
    with stored_as(jnp.float32):
        found = np.asarray(folded(jnp.asarray(leaves)))
    assert_same_bits(found, (leaves[0] + leaves[1]) + (leaves[2] + leaves[3]))


@pytest.mark.parametrize("kind", ["reference", "float32"])
def test_stored_leaves_are_linear_leaves_in_the_stored_type(kind: str) -> None:
    kernels, x, w = select(kind), jnp.asarray(numbers(R, K)), plain(numbers(D, K))
    with stored_as(kernels.stored):
        found = kernels.stored_leaves(x, w, jnp.int32(0), jnp.int32(R), RANGES)
        wanted = kernels.linear_leaves(x, w, jnp.int32(0), jnp.int32(R), RANGES)
    assert found.dtype == kernels.stored
    assert_same_bits(np.asarray(found), np.asarray(wanted).astype(found.dtype))


@pytest.mark.parametrize("dtype", [BF16, np.float32])
@pytest.mark.parametrize("centred", [False, True])
def test_the_norm_of_a_stream_is_that_of_the_rows_it_settles_to(dtype: Any, centred: bool) -> None:
    h, leaves, w = numbers(R, D), numbers(4, R, D, dtype=dtype), plain(1 + numbers(D))
    empty = np.zeros(R, np.int32)
    rows = Rows(empty, empty, None, empty, empty, empty, empty, np.int32(R), None, None, np.int32(0))
    kernels = select("reference")

    @jax.jit
    def run(stream: Any, rows: Rows) -> Any:
        return normed_stream(stream, w, jnp.int32(0), 1e-6, rows, kernels, centred=centred)

    total, x = run(Residual(jnp.asarray(h), jnp.asarray(leaves)), rows)
    wanted = (h.astype(np.float32) + numpy_fold(leaves).astype(np.float32)).astype(BF16)
    assert_same_bits(np.asarray(total), wanted)
    assert_same_bits(np.asarray(settled(Residual(jnp.asarray(h), jnp.asarray(leaves)))), wanted)
    again, alone = run(jnp.asarray(wanted), rows)
    assert_same_bits(np.asarray(again), wanted)
    assert_same_bits(np.asarray(x), np.asarray(alone))
