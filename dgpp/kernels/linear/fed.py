"""Rows on their way into matrices: who will read them, and what a kernel has already made of them for the readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax

from dgpp.formats import Weight
from dgpp.kernels.linear.ranges import Ranges


class Feed(NamedTuple):
    """A matrix that reads the rows, and the K ranges of `linear_leaves`; None where it is read by `linear`."""

    weight: Weight
    ranges: Ranges | None = None


@dataclass(frozen=True)
class Fed:
    """Rows with the operands that a kernel left beside them, by their form. Kernels of the same kind take it as rows.

    It exists while a program is traced, between two ops, and stands for `values` in every respect.
    """

    values: jax.Array  # bf16 [R, K]
    operands: Mapping[Any, Any] = field(repr=False)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the values."""
        return self.values.shape

    @property
    def ndim(self) -> int:
        """Of the values."""
        return self.values.ndim

    @property
    def dtype(self) -> Any:
        """Of the values."""
        return self.values.dtype


def bare(x: jax.Array | Fed) -> jax.Array:
    """The values alone."""
    return x.values if isinstance(x, Fed) else x
