"""How heads that read other heads are cut: query heads and the K/V heads they share, value heads and their key heads.

The reading heads are cut in four leaves by the floor rule (E-2.6). A leaf needs the heads that its own read, and two
leaves may need the same one, so what is read is no partition.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dgpp.checkpoint.slicing import leaf_size, rank_leaves, shared_range
from dgpp.checkpoint.spec import Leaves, even_ranges

Reads = Callable[[int], int]
"""The head that head number i reads; never descending."""


def head_leaves(heads: int, unit: int, axis: int = 0, offset: int = 0) -> Leaves:
    """The leaves of an axis with `unit` elements per reading head, which starts at `offset`."""
    return Leaves(axis, tuple((offset + a * unit, offset + b * unit) for a, b in even_ranges(heads)))


def shared_leaves(reads: Reads, heads: int, unit: int, axis: int = 0, offset: int = 0) -> Leaves:
    """The same for the heads that are read: the range that each leaf of the reading heads needs."""
    needed = [(reads(a), reads(b - 1) + 1 if b > a else reads(a)) for a, b in even_ranges(heads)]
    return Leaves(axis, tuple((offset + a * unit, offset + b * unit) for a, b in needed), partition=False)


def head_index(reads: Reads, heads: int, world: int) -> np.ndarray:
    """int32 [W, heads of a rank]: the local head that every local reading head reads; 0 for those that pad a leaf."""
    if world == 1:
        return np.array([[reads(head) for head in range(heads)]], np.int32)
    own, read = head_leaves(heads, 1), shared_leaves(reads, heads, 1)
    padded = leaf_size(own)
    table = np.zeros((world, padded * 4 // world), np.int32)
    for rank in range(world):
        base = shared_range(read, world, rank)[0]
        for place, leaf in enumerate(rank_leaves(world, rank)):
            start, stop = own.ranges[leaf]
            for i, head in enumerate(range(start, stop)):
                table[rank, place * padded + i] = reads(head) - base
    return table
