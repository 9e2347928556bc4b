"""What every weight format provides, and the pytree that carries a weight in its packed form.

A format is a stateless object; a weight is a `Weight`: the packed arrays plus the name of their format.
`linear(x, w)` in `dgpp.kernels` understands every format, so model code never asks which one it holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class PackedArray:
    """One stored array of a packed weight: the checkpoint's name suffix, its header tag, dtype and shape."""

    suffix: str  # appended to the module's name in the checkpoint: "weight", "weight_scale_inv", ...
    tag: str  # the dtype tag of the safetensors header: "BF16", "F8_E4M3", ...
    dtype: np.dtype[Any]  # how the array is held in memory
    shape: Shape

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


class Format(Protocol):
    """A weight format: how values of a logical shape [N, K] are stored, and exactly what they mean."""

    @property
    def name(self) -> str:
        """The one tag of this format in our tables, e.g. "bf16"."""

    def arrays(self, shape: Shape) -> dict[str, PackedArray]:
        """The stored arrays of a weight of logical `shape`, keyed by field; the first one is the payload."""

    def decode(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """The exact float32 values [..., N, K]. This is the definition every kernel is tested against."""

    def encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The packed arrays nearest to float32 `values`, round to nearest, ties to even."""

    def slice(
        self, arrays: Mapping[str, np.ndarray], shape: Shape, axis: int, start: int, stop: int
    ) -> dict[str, np.ndarray]:
        """The packed arrays of the values `start:stop` along logical `axis` of a weight of logical `shape`.

        The arrays may have leading layer axes. Raises ValueError when the format cannot be cut there.
        """

    def pad(self, arrays: Mapping[str, np.ndarray], shape: Shape, axis: int, size: int) -> dict[str, np.ndarray]:
        """The packed arrays of the values followed by exact zeros, up to `size` along `axis`."""

    def concatenate(self, parts: Sequence[Mapping[str, np.ndarray]], shape: Shape, axis: int) -> dict[str, np.ndarray]:
        """The packed arrays of several weights of one logical `shape`, one after the other along `axis`."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Weight:
    """A weight in its packed form.

    `shape` is the logical shape of one layer, e.g. (N, K). The packed arrays carry a leading layer axis in front of
    it when the layers of a model are stacked.
    """

    arrays: dict[str, Any]
    format: str = field(metadata={"static": True})
    shape: Shape = field(metadata={"static": True})
