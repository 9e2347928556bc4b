"""What every cache format provides: how a row of bfloat16 values is stored, in planes that lie beside each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dgpp.formats.arrays import Array


@dataclass(frozen=True)
class Plane:
    """One array of a cache: what it holds per row. The array has the slots (and heads) in front."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes per row."""
        return math.prod(self.shape) * self.dtype.itemsize


class CacheFormat(Protocol):
    """A format of cache rows. Encoding and decoding take NumPy or JAX arrays and give the same bits in both.

    A row's bits depend on the row alone. Copies of cache blocks must move every plane.
    """

    @property
    def name(self) -> str:
        """The one tag of this format."""

    def planes(self, dim: int) -> dict[str, Plane]:
        """The planes of rows of `dim` values. Raises ValueError when the format has no rows of this width."""

    def encode(self, rows: Array) -> dict[str, Array]:
        """The planes of rows bfloat16 [..., dim]."""

    def decode(self, planes: Mapping[str, Array], dim: int) -> Array:
        """The values float32 [..., dim], each exact in bfloat16: what attention must compute with."""


def bytes_per_row(format: CacheFormat, dim: int) -> int:
    """Bytes of one row over all planes."""
    return sum(plane.nbytes for plane in format.planes(dim).values())
