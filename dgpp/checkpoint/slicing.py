"""What each rank of a world holds of a tensor, derived from the four leaves of its spec.

All ranks of a world run one program, so their slices have one shape: each leaf of a partition is padded with exact
zeros to the size of the largest leaf, and a shared range (K/V heads) to the largest rank's range. A zero column adds
+0 to a finished partial sum and a zero row is never read, so padding changes no bit.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dgpp.checkpoint.spec import LEAVES, Leaves, TensorSpec
from dgpp.formats import Format, Shape

WORLDS = (1, 2, 4)


def rank_leaves(world: int, rank: int) -> range:
    """The leaves of one rank."""
    return range(LEAVES * rank // world, LEAVES * (rank + 1) // world)


def shared_range(leaves: Leaves, world: int, rank: int) -> tuple[int, int]:
    """The one range that covers all non-empty leaves of a rank, for specs that are no partition."""
    held = [leaves.ranges[i] for i in rank_leaves(world, rank) if leaves.ranges[i][1] > leaves.ranges[i][0]]
    return (min(start for start, _ in held), max(stop for _, stop in held)) if held else (0, 0)


def leaf_size(leaves: Leaves) -> int:
    """The padded size of every leaf of a sharded partition: the size of the largest."""
    return max(stop - start for start, stop in leaves.ranges)


def local_size(leaves: Leaves, world: int) -> int:
    """The size of a rank's slice along the cut axis in a world of 2 or 4."""
    if leaves.partition:
        return leaf_size(leaves) * LEAVES // world
    return max(stop - start for start, stop in (shared_range(leaves, world, rank) for rank in range(world)))


def local_shape(spec: TensorSpec, world: int) -> Shape:
    """The logical shape of one rank's slice of one layer. World 1 holds the tensor as published."""
    if world == 1 or spec.leaves is None:
        return spec.shape
    axis, size = spec.leaves.axis, local_size(spec.leaves, world)
    return (*spec.shape[:axis], size, *spec.shape[axis + 1 :])


def local_format(spec: TensorSpec, world: int) -> Format:
    """The format of one rank's slice: that of the whole tensor, or one whose blocks are refined to fit the leaves.

    Raises ValueError when the format cannot be cut at the leaf boundaries.
    """
    if world == 1 or spec.leaves is None:
        return spec.held
    return spec.held.cut(spec.shape, spec.leaves.axis, _bounds(spec.leaves))


def local_ranges(spec: TensorSpec, world: int) -> tuple[tuple[int, int], ...]:
    """Where the leaves of a rank lie in its slice: the published ranges in world 1, equal padded ones otherwise."""
    if spec.leaves is None or not spec.leaves.partition:
        raise ValueError(f"{spec.source}: not cut into leaves")
    if world == 1:
        return spec.leaves.ranges
    size = leaf_size(spec.leaves)
    return tuple((i * size, (i + 1) * size) for i in range(LEAVES // world))


def rank_slice(spec: TensorSpec, arrays: Mapping[str, np.ndarray], world: int, rank: int) -> dict[str, np.ndarray]:
    """One rank's packed arrays, of the shape `local_shape` and the format `local_format` give.

    `arrays` are those of the format in memory and may be stacked over layers.
    Raises ValueError when the format cannot be cut at the leaf boundaries.
    """
    if world == 1 or spec.leaves is None:
        return dict(arrays)
    leaves, codec = spec.leaves, local_format(spec, world)
    arrays = spec.held.recut(arrays, spec.shape, leaves.axis, _bounds(leaves))
    if not leaves.partition:
        start, stop = shared_range(leaves, world, rank)
        held = codec.slice(arrays, spec.shape, leaves.axis, start, stop)
        return codec.pad(held, _resized(spec, stop - start), leaves.axis, local_size(leaves, world))
    size = leaf_size(leaves)
    parts = []
    for start, stop in (leaves.ranges[i] for i in rank_leaves(world, rank)):
        held = codec.slice(arrays, spec.shape, leaves.axis, start, stop)
        parts.append(codec.pad(held, _resized(spec, stop - start), leaves.axis, size))
    return codec.concatenate(parts, _resized(spec, size), leaves.axis)


def rank_bytes(spec: TensorSpec, world: int) -> int:
    """Bytes of one rank's slice over all layers."""
    arrays = local_format(spec, world).arrays(local_shape(spec, world)).values()
    return sum(a.nbytes for a in arrays if a.resident) * max(1, spec.layers)


def _bounds(leaves: Leaves) -> tuple[int, ...]:
    return tuple(bound for pair in leaves.ranges for bound in pair)


def _resized(spec: TensorSpec, size: int) -> Shape:
    assert spec.leaves is not None
    axis = spec.leaves.axis
    return (*spec.shape[:axis], size, *spec.shape[axis + 1 :])
