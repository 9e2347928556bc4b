"""What each rank of a world holds of a tensor, derived from the four leaves of each band of its spec.

All ranks of a world run one program, so their slices have one shape: each leaf of a partition is padded with exact
zeros to the size of the largest leaf, and a shared range (K/V heads) to the largest rank's range. A zero column adds
+0 to a finished partial sum and a zero row is never read, so padding changes no bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    """The size of a rank's slice of one band, along the cut axis, in a world of 2 or 4."""
    if leaves.partition:
        return leaf_size(leaves) * LEAVES // world
    return max(stop - start for start, stop in (shared_range(leaves, world, rank) for rank in range(world)))


def local_shape(spec: TensorSpec, world: int) -> Shape:
    """The logical shape of one rank's slice of one layer. World 1 holds the tensor as published."""
    if world == 1 or not spec.bands:
        return spec.shape
    return _resized(spec, sum(local_size(band, world) for band in spec.bands))


def local_format(spec: TensorSpec, world: int) -> Format:
    """The format of one rank's slice: that of the whole tensor, or one whose blocks are refined to fit the leaves.

    Raises ValueError when the format cannot be cut at the leaf boundaries.
    """
    if world == 1 or not spec.bands:
        return spec.held
    return spec.held.cut(spec.shape, spec.bands[0].axis, _bounds(spec))


def local_ranges(spec: TensorSpec, world: int) -> tuple[tuple[int, int], ...]:
    """Where the leaves of a rank lie in its slice: the published ranges in world 1, equal padded ones otherwise.

    Raises ValueError for a tensor that is not cut, or in several bands.
    """
    if len(spec.bands) != 1 or not spec.bands[0].partition:
        raise ValueError(f"{spec.source}: not cut into leaves")
    leaves = spec.bands[0]
    if world == 1:
        return leaves.ranges
    size = leaf_size(leaves)
    return tuple((i * size, (i + 1) * size) for i in range(LEAVES // world))


def rank_slice(spec: TensorSpec, arrays: Mapping[str, np.ndarray], world: int, rank: int) -> dict[str, np.ndarray]:
    """One rank's packed arrays, of the shape `local_shape` and the format `local_format` give.

    `arrays` are those of the format in memory and may be stacked over layers.
    Raises ValueError when the format cannot be cut at the leaf boundaries.
    """
    if world == 1 or not spec.bands:
        return dict(arrays)
    codec, axis = local_format(spec, world), spec.bands[0].axis
    arrays = spec.held.recut(arrays, spec.shape, axis, _bounds(spec))
    parts: list[dict[str, np.ndarray]] = []
    sizes: list[int] = []
    for band in spec.bands:
        for start, stop, size in _pieces(band, world, rank):
            held = codec.slice(arrays, spec.shape, axis, start, stop)
            parts.append(codec.pad(held, _resized(spec, stop - start), axis, size))
            sizes.append(size)
    return codec.concatenate(parts, [_resized(spec, size) for size in sizes], axis) if len(parts) > 1 else parts[0]


def _pieces(band: Leaves, world: int, rank: int) -> Iterator[tuple[int, int, int]]:
    """(start, stop, padded size) of what a rank holds of a band: its leaves, or the range that they share."""
    if not band.partition:
        yield *shared_range(band, world, rank), local_size(band, world)
        return
    for leaf in rank_leaves(world, rank):
        yield *band.ranges[leaf], leaf_size(band)


def rank_bytes(spec: TensorSpec, world: int) -> int:
    """Bytes of one rank's slice over all layers."""
    arrays = local_format(spec, world).arrays(local_shape(spec, world)).values()
    return sum(a.nbytes for a in arrays if a.resident) * len(spec.stack)


def _bounds(spec: TensorSpec) -> tuple[int, ...]:
    return tuple(bound for band in spec.bands for pair in band.ranges for bound in pair)


def _resized(spec: TensorSpec, size: int) -> Shape:
    axis = spec.bands[0].axis
    return (*spec.shape[:axis], size, *spec.shape[axis + 1 :])
