"""The ragged batch of one step, as the host plans it: segments of consecutive positions of one slot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dgpp.layers.rows import Phase, Rows


@dataclass(frozen=True)
class Segment:
    """`tokens` at positions `start`, `start + 1`, … of `slot`. `sampled` rows, counted from the segment's first,
    are those whose logits the step returns."""

    slot: int
    start: int
    tokens: tuple[int, ...]
    phase: Phase
    sampled: tuple[int, ...] = ()


@dataclass(frozen=True)
class Batch:
    """The arrays of one step, padded to a row family, and which row of the logits belongs to which segment."""

    rows: Rows
    sample_rows: np.ndarray  # int32 [B]: rows of the batch whose logits are wanted, padded with 0
    sample_used: np.int32  #: how many of them are real
    owners: tuple[tuple[int, int], ...]  # (segment, row within it) of every wanted row, in the order of the logits

    @property
    def used(self) -> int:
        """Rows that are not padding."""
        return int(self.rows.used)


def family_for(rows: int, families: Sequence[int]) -> int:
    """The smallest row family that holds `rows`. Raises ValueError when none does."""
    for family in families:
        if rows <= family:
            return family
    raise ValueError(f"a step of {rows} rows does not fit the largest row family, {max(families)}")


def build(segments: Sequence[Segment], page_table: np.ndarray, family: int, samples: int) -> Batch:
    """The batch of the segments in their order, padded to `family` rows and `samples` wanted rows."""
    token = np.full(family, -1, np.int32)
    position = np.full(family, -1, np.int32)
    slot = np.full(family, -1, np.int32)
    phase = np.zeros(family, np.int32)
    sample_rows = np.zeros(samples, np.int32)
    owners: list[tuple[int, int]] = []
    first = 0
    for index, segment in enumerate(segments):
        count = len(segment.tokens)
        if first + count > family:
            raise ValueError(f"{first + count} rows do not fit a family of {family}")
        part = slice(first, first + count)
        token[part] = segment.tokens
        position[part] = np.arange(segment.start, segment.start + count)
        slot[part] = segment.slot
        phase[part] = segment.phase
        for row in segment.sampled:
            if len(owners) == samples:
                raise ValueError(f"more than {samples} rows are sampled")
            sample_rows[len(owners)] = first + row
            owners.append((index, row))
        first += count
    rows = Rows(token, position, slot, phase, np.int32(first), page_table.copy(), np.int32(0))
    return Batch(rows, sample_rows, np.int32(len(owners)), tuple(owners))
