"""What a model remembers of a sequence, as data: paged planes, rings, and values at the last commit.

Planes and rings are positional: what is written past a sequence's length is invisible and is overwritten by the tokens
that come to stand there, so that taking tokens back costs nothing. A recurrent state is not; it is kept as it was at
the slot's last commit, and the inputs of the rows since then lie in a ring beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dgpp.formats import Shape
from dgpp.formats.bf16 import BFLOAT16


@dataclass(frozen=True)
class Room:
    """How much a core makes room for. `verify_rows` is the most rows of one verify segment."""

    pages: int
    page_tokens: int
    slots: int
    verify_rows: int


@dataclass(frozen=True)
class PlaneSpec:
    """A paged plane of a rank: L layers, each storing `shape` values of `dtype` for every `per` tokens."""

    layers: int
    shape: Shape
    dtype: np.dtype[Any]
    per: int = 1

    def allocation(self, room: Room) -> Shape:
        """[L, pages, page / per, *shape]. Raises ValueError when a page does not hold whole entries."""
        if room.page_tokens % self.per:
            raise ValueError(f"pages of {room.page_tokens} tokens do not hold whole entries of {self.per} tokens")
        return (self.layers, room.pages, room.page_tokens // self.per, *self.shape)

    @property
    def bytes_per_token(self) -> int:
        """Bytes one token takes in this plane, over all layers."""
        return self.layers * math.prod(self.shape) * self.dtype.itemsize // self.per

    def bytes_per_slot(self, verify_rows: int) -> int:
        """Planes take nothing per slot."""
        return 0


@dataclass(frozen=True)
class RingSpec:
    """The last rows of every slot: the row of position p lies at p modulo the depth.

    The depth is `before`, the rows before its own that a row looks back to, and those of one verify segment.
    """

    layers: int
    shape: Shape
    dtype: np.dtype[Any]
    before: int

    def allocation(self, room: Room) -> Shape:
        """[L, S, depth, *shape]."""
        return (self.layers, room.slots, self.before + room.verify_rows, *self.shape)

    @property
    def bytes_per_token(self) -> int:
        """Rings do not grow with tokens."""
        return 0

    def bytes_per_slot(self, verify_rows: int) -> int:
        """Bytes of one slot, over all layers."""
        return self.layers * (self.before + verify_rows) * math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class SlotSpec:
    """A value of every slot at its last commit."""

    layers: int
    shape: Shape
    dtype: np.dtype[Any]

    def allocation(self, room: Room) -> Shape:
        """[L, S, *shape]."""
        return (self.layers, room.slots, *self.shape)

    @property
    def bytes_per_token(self) -> int:
        """Committed values do not grow with tokens."""
        return 0

    def bytes_per_slot(self, verify_rows: int) -> int:
        """Bytes of one slot, over all layers."""
        return self.layers * math.prod(self.shape) * self.dtype.itemsize


StateSpec = PlaneSpec | RingSpec | SlotSpec
StateSpecs = dict[str, StateSpec]
"""By name; a name is "<part>.<what>", e.g. "delta.conv"."""


def per_slot(specs: Mapping[str, StateSpec]) -> list[str]:
    """The names of what belongs to a slot and not to its pages."""
    return [name for name, spec in specs.items() if not isinstance(spec, PlaneSpec)]


def stored_specs(specs: Mapping[str, StateSpec], stored: Any) -> StateSpecs:
    """The specs with the type in which kernels store activations, bfloat16 or float32, in place of bfloat16."""
    kind = np.dtype(stored)
    return {name: replace(spec, dtype=kind) if spec.dtype == BFLOAT16 else spec for name, spec in specs.items()}
