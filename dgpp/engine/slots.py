"""What belongs to a slot beside its pages: how far it is committed, and copies of it.

The host alone knows which verified rows were accepted: a slot's next segment says so by where it starts. From that the
keeper derives how many rows the step has to replay, and refuses a segment that the state cannot follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from dgpp.engine.batch import Segment
from dgpp.kernels.rows import Phase

State = dict[str, jax.Array]


@dataclass(frozen=True)
class SlotState:
    """A copy of a slot's rings and committed values: `arrays` [L, ...] each, or [W, L, ...] in a world of W ranks.

    Tokens before `committed` are in the committed values; the next `pending` ones have their inputs in the rings.
    `recent` are the last tokens that were fed, as far as a next segment may need them.
    """

    arrays: Mapping[str, jax.Array]
    committed: int
    pending: int
    recent: tuple[int, ...] = ()


class SlotKeeper:
    """Keeps account of the slots of one core. `names` are the arrays that belong to slots; without any, a segment may
    start anywhere, because pages alone are positional. `back` is the number of tokens before a segment that the host
    needs to know."""

    def __init__(self, names: Sequence[str], slots: int, verify_rows: int, back: int = 0) -> None:
        self._names = tuple(names)
        self._back = back
        self._recent: list[tuple[int, ...]] = [()] * slots
        self._verify_rows = verify_rows
        self._committed = np.zeros(slots, np.int32)
        self._pending = np.zeros(slots, np.int32)

    def replays(self, segments: Sequence[Segment]) -> np.ndarray:
        """int32 [S]: the accepted rows since its last commit that the step of `segments` replays for each slot.

        Raises ValueError for a segment that starts neither at 0 nor within what the slot can follow, and for a verify
        segment that is too long.
        """
        replay = np.zeros(len(self._committed), np.int32)
        if not self._names:
            return replay
        for segment in segments:
            if segment.phase == Phase.VERIFY and len(segment.tokens) > self._verify_rows:
                raise ValueError(f"{len(segment.tokens)} rows to verify; this core has room for {self._verify_rows}")
            committed, pending = int(self._committed[segment.slot]), int(self._pending[segment.slot])
            if segment.start and not committed <= segment.start <= committed + pending:
                where = f"{committed}" if not pending else f"{committed} to {committed + pending}"
                raise ValueError(
                    f"slot {segment.slot} can go on at position {where}, or start anew at 0, but not at {segment.start}"
                )
            replay[segment.slot] = segment.start - committed if segment.start else 0
        return replay

    def before(self, segment: Segment) -> tuple[int, ...]:
        """The last tokens before a segment that its slot can follow: `back` of them, or all if there are fewer."""
        if not segment.start or not self._back:
            return ()
        recent = self._recent[segment.slot]
        rejected = int(self._committed[segment.slot] + self._pending[segment.slot]) - segment.start
        return recent[: len(recent) - rejected][-self._back :]

    def advance(self, segments: Sequence[Segment]) -> None:
        """Records that a step of `segments` was computed."""
        for segment in segments:
            count = len(segment.tokens)
            verified = segment.phase == Phase.VERIFY
            if self._back:
                fed = (*self.before(segment), *segment.tokens)
                self._recent[segment.slot] = fed[-(self._back + (count if verified else 0)) :]
            self._committed[segment.slot] = segment.start + (0 if verified else count)
            self._pending[segment.slot] = count if verified else 0

    def keep(self, slot: int, state: State, ranked: bool) -> SlotState:
        """A copy of a slot's part of `state`; `ranked` arrays have an axis for the ranks in front."""
        arrays = {name: _taken(state[name], slot, axis=2 if ranked else 1) for name in self._names}
        return SlotState(arrays, int(self._committed[slot]), int(self._pending[slot]), self._recent[slot])

    def restore(self, slot: int, kept: SlotState, state: State, ranked: bool) -> State:
        """`state` with a slot as it was kept. The arrays that change are donated."""
        self._committed[slot], self._pending[slot], self._recent[slot] = kept.committed, kept.pending, kept.recent
        put = {name: _put(state[name], kept.arrays[name], slot, axis=2 if ranked else 1) for name in self._names}
        return {**state, **put}


@partial(jax.jit, static_argnames="axis")
def _taken(x: jax.Array, slot: Any, axis: int) -> jax.Array:
    return jax.lax.dynamic_index_in_dim(x, slot, axis, keepdims=False)


@partial(jax.jit, static_argnames="axis", donate_argnums=0)
def _put(x: jax.Array, part: jax.Array, slot: Any, axis: int) -> jax.Array:
    return jax.lax.dynamic_update_index_in_dim(x, part, slot, axis)
