"""Which rows go together: the pairs of a row and a chosen expert, grouped by expert into tiles, on the device.

A pair is r * E' + j for the j-th expert of row r. A tile is up to BR pairs of one expert; a matrix is read once for a
tile. Of an expert's pairs the tiles take BR after BR in ascending order. Two tables say so: `place` int32 [T], the
expert of each tile, or -1 where there is none, and `members` int32 [T, BR], its pairs, then -1. T is fixed while
tracing, by the most that there can be. Of few pairs every one may start a tile, and `started` finds out in one launch;
for many there are `count` and `group`. Of one row every pair is a tile, without tables. What a tile holds decides no
bits.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def chosen(
    experts: tl.tensor,  # int32 [P]
    pair: tl.tensor,
    live: tl.tensor,  # int32 scalar: how many pairs belong to real rows
    P: tl.constexpr,
    HELD: tl.constexpr,
) -> tl.tensor:
    """The experts of pairs; -1 for those that are not here and for rows that are none."""
    expert = tl.load(experts + pair, mask=pair < P, other=-1)
    return tl.where((pair < live) & (expert >= 0) & (expert < HELD), expert, -1)


@triton.jit
def started(
    experts: tl.tensor,  # int32 [P]
    used: tl.tensor,  # int32 scalar
    place: tl.tensor,  # int32 [P]
    members: tl.tensor,  # int32 [P, BR]
    P: tl.constexpr,
    PPAD: tl.constexpr,  # a power of two, at least P
    EACH: tl.constexpr,  # pairs of a row
    HELD: tl.constexpr,
    BR: tl.constexpr,
) -> None:
    """Grid (P,): the tile that starts at each pair, where a multiple of BR pairs of the same expert lie before."""
    mine = tl.program_id(0)
    live = tl.load(used) * EACH
    own = chosen(experts, mine, live, P, HELD)
    slot = tl.arange(0, BR)
    pair = tl.arange(0, PPAD)
    same = (chosen(experts, pair, live, P, HELD) == own) & (own >= 0)
    before = tl.sum((same & (pair < mine)).to(tl.int32), axis=0)
    rank = tl.cumsum(same.to(tl.int32), axis=0) - 1
    found = same[None, :] & (rank[None, :] == before + slot[:, None])
    tl.store(place + mine, tl.where(before % BR == 0, own, -1))
    tl.store(members + mine * BR + slot, tl.sum(tl.where(found, pair[None, :] + 1, 0), axis=1) - 1)


@triton.jit
def count(
    experts: tl.tensor,  # int32 [P]
    used: tl.tensor,  # int32 scalar
    counts: tl.tensor,  # int32 [HELD]
    P: tl.constexpr,
    EACH: tl.constexpr,
    HELD: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Grid (HELD,): how many pairs each expert has."""
    mine = tl.program_id(0)
    live = tl.load(used) * EACH
    found = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, P, BLOCK):
        found += (chosen(experts, first + tl.arange(0, BLOCK), live, P, HELD) == mine).to(tl.int32)
    tl.store(counts + mine, tl.sum(found, axis=0))


@triton.jit
def group(
    experts: tl.tensor,  # int32 [P]
    used: tl.tensor,  # int32 scalar
    counts: tl.tensor,  # int32 [HELD]
    place: tl.tensor,  # int32 [T]
    members: tl.tensor,  # int32 [T, BR]
    P: tl.constexpr,
    EACH: tl.constexpr,
    HELD: tl.constexpr,
    HPAD: tl.constexpr,  # a power of two, at least HELD
    T: tl.constexpr,
    BR: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Grid (HELD,): the tiles of each expert, in ascending order of experts."""
    mine = tl.program_id(0)
    live = tl.load(used) * EACH
    expert = tl.arange(0, HPAD)
    tiles = tl.cdiv(tl.load(counts + expert, mask=expert < HELD, other=0), BR)
    first = tl.sum(tl.where(expert < mine, tiles, 0), axis=0)
    stop = first + tl.sum(tl.where(expert == mine, tiles, 0), axis=0)
    for at in range(0, T, BLOCK):
        tile = at + tl.arange(0, BLOCK)
        tl.store(place + tile, tl.full((BLOCK,), mine, tl.int32), mask=(tile >= first) & (tile < stop))
        if mine == HELD - 1:
            tl.store(place + tile, tl.full((BLOCK,), -1, tl.int32), mask=(tile >= stop) & (tile < T))
    done = 0
    for at in range(0, P, BLOCK):
        pair = at + tl.arange(0, BLOCK)
        same = chosen(experts, pair, live, P, HELD) == mine
        rank = done + tl.cumsum(same.to(tl.int32), axis=0) - 1
        tl.store(members + first * BR + rank, pair, mask=same)
        done += tl.sum(same.to(tl.int32), axis=0)
    slot = done + tl.arange(0, BR)
    tl.store(members + first * BR + slot, tl.full((BR,), -1, tl.int32), mask=slot < (stop - first) * BR)
