"""What every weight format provides, and the pytree that carries a weight in its packed form.

A format is a stateless object; a weight is a `Weight`: the packed arrays plus the name of their format. The linear ops
of `dgpp.kernels` understand every format through the methods below, so model code never asks which one it holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from dgpp.formats.arrays import Array, place_among

Shape = tuple[int, ...]

Arrays = Mapping[str, Any]
"""Packed arrays by field name."""

ANY = -1
"""A length that follows from the data, not from the logical shape."""


@dataclass(frozen=True)
class Along:
    """A dimension of a stored array that runs along a logical axis: `per` elements take `entries` indices."""

    axis: int  # 0 is N, 1 is K
    per: int = 1
    entries: int = 1

    def index(self, position: int) -> int:
        """The index at which the element `position` starts; a started bunch counts in full."""
        return -(-position // self.per) * self.entries


@dataclass(frozen=True)
class PackedArray:
    """One stored array of a packed weight: the checkpoint's name suffix, its header tag, dtype and shape.

    `dims` says for each of the last dimensions which logical axis it runs along; None for one that runs along
    neither. `fill` pads it, giving weights that are exactly zero. An array that is not `resident` is read once, for
    `Format.check`, and then dropped; an `optional` one may be missing. `also` are other tags with the same bytes.
    """

    suffix: str  # see `tensor`
    tag: str  # the dtype tag of the safetensors header: "BF16", "F8_E4M3", ...
    dtype: np.dtype[Any]  # how the array is held in memory
    shape: Shape
    dims: tuple[Along | None, ...] = ()
    fill: float = 0
    resident: bool = True
    optional: bool = False
    also: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of the array; 0 when its length is known only from the data."""
        return 0 if ANY in self.shape else math.prod(self.shape) * self.dtype.itemsize

    def tensor(self, module: str) -> str:
        """The tensor's full name: the suffix after a dot, or directly when it starts with "_" or is empty."""
        return module + self.suffix if self.suffix.startswith("_") or not self.suffix else f"{module}.{self.suffix}"

    def fits(self, shape: Shape) -> bool:
        """Whether a stored shape is this one."""
        return len(shape) == len(self.shape) and all(a in (b, ANY) for a, b in zip(self.shape, shape, strict=True))


class Activations(NamedTuple):
    """Activations as a format's operand meets them: float32 [R, K], and one factor per K group [R, G] or None."""

    values: Array
    scales: Array | None = None


class Format(Protocol):
    """A weight format: how values of a logical shape [N, K] are stored, what they mean, and how a kernel uses them.

    Shapes may have axes in front of [N, K] (the experts of a fused tensor); the arrays have them too. `decode`,
    `decode64` and `slice` also take arrays with leading layer axes that the shape does not mention.

    The product of rows x [R, K] and a weight is defined by the last five methods, for one matrix:

        a = prepare(x)                                        # most formats: x itself
        y[r, n] = sum_k a.values[r, k] * operand[n, k]        # group is None: one sum
        y[r, n] = sum_g (sum_{k in g} ...) * factor[r, n, g]  # else: one finished sum per `group` elements of K
        factor  = scales[n, g], or rounded(scales[n, g] * a.scales[r, g])
        result  = epilogue(y)

    where every inner sum follows the lanes and the tree of `dgpp.formats.reference`, every product with a factor is
    rounded, and groups are added in ascending order. The methods take NumPy or JAX arrays and can be compiled.
    """

    @property
    def name(self) -> str:
        """The one tag of this format in our tables, e.g. "bf16"."""

    @property
    def exact_in(self) -> tuple[str, ...]:
        """The 16-bit types, of "bf16" and "f16", that hold every value of the operand exactly."""

    @property
    def group(self) -> int | None:
        """Elements of K under one scale that is applied to their finished sum; None if none is."""

    @property
    def slice_rule(self) -> str:
        """Where rows (N) and columns (K) may be cut, in a few words."""

    def arrays(self, shape: Shape) -> dict[str, PackedArray]:
        """The stored arrays of a weight of logical `shape`, keyed by field; the first one is the payload.

        Raises ValueError when the format cannot hold the shape.
        """

    def bytes_per_weight(self, shape: Shape) -> float:
        """Resident bytes per weight at `shape`, without what depends on the data."""

    def fits(self, arrays: Arrays, shape: Shape) -> None:
        """Raises ValueError naming the array that is missing or has another dtype or shape; reads no values."""

    def check(self, arrays: Arrays, shape: Shape) -> None:
        """`fits`, and raises ValueError when the values that were read cannot be a weight of this format."""

    @property
    def loads_as(self) -> str:
        """The tag of the format in which a loaded weight is held: this one, unless its layout is for disk only."""

    def load(self, arrays: Arrays, shape: Shape) -> dict[str, np.ndarray]:
        """The resident arrays of format `loads_as`, from all that were read."""

    def decode(self, arrays: Arrays, shape: Shape) -> np.ndarray:
        """The float32 values [..., N, K] by the published formula; the format's text counts the roundings in it."""

    def decode64(self, arrays: Arrays, shape: Shape) -> np.ndarray:
        """The real values in float64 [..., N, K], without any rounding that float64 can avoid."""

    def encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The packed arrays nearest to float32 `values`, round to nearest; also those that are not resident."""

    def slice(self, arrays: Arrays, shape: Shape, axis: int, start: int, stop: int) -> dict[str, np.ndarray]:
        """The packed arrays of the values `start:stop` along logical `axis` of a weight of logical `shape`.

        Raises ValueError when the format cannot be cut there.
        """

    def pad(self, arrays: Arrays, shape: Shape, axis: int, size: int) -> dict[str, np.ndarray]:
        """The packed arrays of the values followed by exact zeros, up to `size` along `axis`."""

    def concatenate(self, parts: Sequence[Arrays], shapes: Sequence[Shape], axis: int) -> dict[str, np.ndarray]:
        """The packed arrays of several weights, of a logical shape each, one after the other along `axis`.

        Raises ValueError when the parts differ in something that the format stores once.
        """

    def cut(self, shape: Shape, axis: int, bounds: Sequence[int]) -> Format:
        """The format that slices along `axis` between `bounds` are held in: this one, or one with finer blocks.

        Raises ValueError when there is none.
        """

    def recut(self, arrays: Arrays, shape: Shape, axis: int, bounds: Sequence[int]) -> dict[str, np.ndarray]:
        """The same weight in the format `cut` gives."""

    def rows(self, arrays: Arrays, shape: Shape, start: Array, count: int, lead: Sequence[Array] = ()) -> Arrays:
        """What `operand` and `scales` need for rows `start` to `start + count` of the matrix at `lead`.

        `lead` indexes the axes in front of [N, K] and, like `start`, may be traced. `start` and `count` are multiples
        of 16, or `count` is N; so the whole decoded matrix need never exist.
        """

    def operand(self, block: Arrays, shape: Shape) -> Array:
        """float32 [C, K] of the C rows in `block`; every value is exact in the types of `exact_in`."""

    def scales(self, block: Arrays, shape: Shape) -> Array:
        """float32 [C, ceil(K / group)]; only for formats with a group."""

    def prepare(self, x: Array, arrays: Arrays, shape: Shape) -> Activations:
        """Rows x bfloat16 [R, K] as the operand meets them: rotated, permuted or quantised. `arrays`: one matrix."""

    def epilogue(self, y: Array, arrays: Arrays, shape: Shape) -> Array:
        """float32 [..., N] from the sums y float32 [..., N]: what is applied once per output. `arrays`: one matrix."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Weight:
    """A weight in its packed form.

    `shape` is the logical shape of one layer, e.g. (N, K) or (E, N, K). The packed arrays carry a leading layer axis
    in front of it when layers of a model are stacked; `numbers` are the numbers of these layers, ascending. Without
    any, layers go by their place.
    """

    arrays: dict[str, Any]
    format: str = field(metadata={"static": True})
    shape: Shape = field(metadata={"static": True})
    numbers: tuple[int, ...] = field(default=(), metadata={"static": True})

    def place(self, layer: Array) -> Array:
        """The index of layer number `layer`, which may be traced, in the stack; any index for one that is not in it."""
        return place_among(self.numbers, layer) if self.numbers else layer
