from __future__ import annotations

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from jax.sharding import AxisType, PartitionSpec

from dgpp.kernels.leaves import folded
from dgpp.world import Mesh, Single

BF16 = ml_dtypes.bfloat16


def numpy_tree(leaves: np.ndarray) -> np.ndarray:
    q0, q1, q2, q3 = leaves.astype(np.float32)
    return ((q0 + q1) + (q2 + q3)).astype(BF16)


def test_the_order_of_the_fold_is_the_tree_and_no_other() -> None:
    # The chain ((q0+q1)+q2)+q3 gives 1.0 and the tree 1.0078125 (the vector of E-2.2): an order is being tested.
    leaves = np.array([1, 2**-8, 1.5 * 2**-25, 1.5 * 2**-25], np.float32).astype(BF16).reshape(4, 1, 1)
    assert float(folded(jnp.asarray(leaves))[0, 0]) == 1.0078125
    q = leaves.astype(np.float32)
    assert float((((q[0] + q[1]) + q[2]) + q[3]).astype(BF16)[0, 0]) == 1.0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-30, 1e-3, 1.0, 1e30]))
def test_E_2_2_the_fold_equals_numpy_bit_for_bit(seed: int, scale: float) -> None:
    leaves = (np.random.default_rng(seed).standard_normal((4, 3, 8)) * scale).astype(BF16)
    leaves[2] = -leaves[1]  # cancellation
    assert np.asarray(jax.jit(folded)(leaves)).tobytes() == numpy_tree(leaves).tobytes()


@pytest.mark.parametrize("size", [2, 4])
def test_every_rank_of_a_mesh_folds_to_the_bits_of_world_1(size: int) -> None:
    leaves = np.random.default_rng(3).standard_normal((4, 5, 32)).astype(BF16)
    mesh = jax.make_mesh((size,), ("rank",), axis_types=(AxisType.Auto,), devices=jax.devices()[:size])
    mapped = jax.shard_map(
        lambda x: folded(Mesh(size).leaves(x))[None],
        mesh=mesh,
        in_specs=PartitionSpec("rank"),
        out_specs=PartitionSpec("rank"),
        check_vma=False,
    )
    ranks = np.asarray(jax.jit(mapped)(leaves))
    expected = np.asarray(folded(Single().leaves(jnp.asarray(leaves))))
    assert ranks.shape == (size, 5, 32)
    for rank in range(size):
        assert ranks[rank].tobytes() == expected.tobytes()


@pytest.mark.parametrize("size", [2, 4])
def test_E_2_6_gather_cuts_the_padding_of_uneven_vocabulary_leaves(size: int) -> None:
    sizes = [2, 3, 2, 3]
    whole = np.arange(20, dtype=np.float32).reshape(2, 10)
    padded = np.full((4, 2, 3), np.nan, np.float32)
    start = 0
    for leaf, count in enumerate(sizes):
        padded[leaf, :, :count] = whole[:, start : start + count]
        start += count
    per_rank = padded.reshape(size, 4 // size, 2, 3).transpose(0, 2, 1, 3).reshape(size * 2, -1)
    mesh = jax.make_mesh((size,), ("rank",), axis_types=(AxisType.Auto,), devices=jax.devices()[:size])
    mapped = jax.shard_map(
        lambda x: Mesh(size).gather(x, sizes),
        mesh=mesh,
        in_specs=PartitionSpec("rank"),
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    assert np.asarray(mapped(per_rank)).tolist() == whole.tolist()
