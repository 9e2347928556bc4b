"""The ragged batch of one step, as the host plans it: segments of consecutive positions of one slot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.formats import Shape
from dgpp.kernels.rows import Phase, Rows


@dataclass(frozen=True)
class Segment:
    """`tokens` at positions `start`, `start + 1`, … of `slot`; one that is `picked(row)` is what the step before picks
    for its wanted row `row`, which the host need not have read. `sampled` rows, counted from the segment's first,
    are those whose logits the step returns. `rope` are the rows' rotary positions (temporal, vertical, horizontal)
    where they are not the positions in the cache, as behind an image."""

    slot: int
    start: int
    tokens: tuple[int, ...]
    phase: Phase
    sampled: tuple[int, ...] = ()
    rope: tuple[tuple[int, int, int], ...] | None = None


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

    def packed(self) -> tuple[np.ndarray, tuple[Shape, ...]]:
        """(all its integers as one int32 vector, the shapes of which `unpacked` makes the batch again): an array on its
        own costs tens of microseconds to bring to a device, and a batch has a dozen."""
        parts = [*(getattr(self.rows, name) for name in INTEGERS), self.sample_rows, self.sample_used]
        return np.concatenate([np.ravel(part) for part in parts]), tuple(np.shape(part) for part in parts)


def picked(row: int) -> int:
    """Stands in a segment for the token that the step before picks for its wanted row `row`."""
    return -2 - row


INTEGERS = tuple(part.name for part in fields(Rows) if part.name != "ngrams")
"""The fields of a batch's rows that are int32, in the order in which they are packed."""


def unpacked(
    vector: jax.Array, ngrams: jax.Array | None, picks: jax.Array, shapes: tuple[Shape, ...]
) -> tuple[Rows, Any, Any]:
    """(rows, sample_rows, sample_used) of a packed batch, inside a compiled step. `picks` int32 [B] are those of the
    step before; where one is none, because of a logit that is no number, the row goes on with token 0."""
    ends = np.cumsum([math.prod(shape) for shape in shapes]).tolist()
    parts = [vector[start:end].reshape(shape) for start, end, shape in zip([0, *ends], ends, shapes, strict=False)]
    *ints, sample_rows, sample_used = parts
    rows = Rows(**dict(zip(INTEGERS, ints, strict=True)), ngrams=ngrams)
    row = picked(0) - rows.token
    token = jnp.where(row < 0, rows.token, jnp.maximum(picks[jnp.maximum(row, 0)], 0))
    return replace(rows, token=token), sample_rows, sample_used


def family_for(rows: int, families: Sequence[int]) -> int:
    """The smallest row family that holds `rows`. Raises ValueError when none does."""
    for family in families:
        if rows <= family:
            return family
    raise ValueError(f"a step of {rows} rows does not fit the largest row family, {max(families)}")


def build(
    segments: Sequence[Segment],
    page_table: np.ndarray,
    family: int,
    samples: int,
    replay: np.ndarray | None = None,
) -> Batch:
    """The batch of the segments in their order, padded to `family` rows and `samples` wanted rows.

    `replay` int32 [S] is that of `Rows`; nothing is replayed without it. Raises ValueError for segments that do not
    fit, two of one slot, and rotary positions of another number than tokens.
    """
    slots = [segment.slot for segment in segments]
    if twice := [slot for slot in slots if slots.count(slot) > 1]:
        raise ValueError(f"slot {twice[0]} has two segments in one step")
    replay = np.zeros(len(page_table), np.int32) if replay is None else replay
    token = np.full(family, -1, np.int32)
    rope = np.zeros((family, 3), np.int32)
    first_row, last_row = np.arange(family, dtype=np.int32), np.arange(family, dtype=np.int32)
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
        if segment.rope is not None and len(segment.rope) != count:
            raise ValueError(f"{count} tokens have {len(segment.rope)} rotary positions")
        rope[part] = position[part, None] if segment.rope is None else segment.rope
        first_row[part], last_row[part] = first, first + count - 1
        slot[part] = segment.slot
        phase[part] = segment.phase
        for row in segment.sampled:
            if len(owners) == samples:
                raise ValueError(f"more than {samples} rows are sampled")
            sample_rows[len(owners)] = first + row
            owners.append((index, row))
        first += count
    rows = Rows(
        token,
        position,
        rope,
        slot,
        phase,
        first_row,
        last_row,
        np.int32(first),
        page_table.copy(),
        replay.astype(np.int32),
        np.int32(0),
    )
    return Batch(rows, sample_rows, np.int32(len(owners)), tuple(owners))
