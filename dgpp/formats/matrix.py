"""What matrix formats have in common, derived from how their stored arrays run along N and K."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dgpp.formats.arrays import Array, at, block
from dgpp.formats.base import ANY, Activations, Arrays, Format, PackedArray, Shape

AXES = ("N", "K")


class MatrixFormat(ABC):
    """The parts of `Format` that follow from `fields`, with the defaults of a format without scales.

    A subclass gives what is abstract here, and overrides what is special about it.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The tag."""

    @property
    @abstractmethod
    def exact_in(self) -> tuple[str, ...]:
        """The types that hold the operand exactly."""

    @property
    @abstractmethod
    def slice_rule(self) -> str:
        """Where it may be cut."""

    @property
    def group(self) -> int | None:
        """No scale outside the operand."""
        return None

    @abstractmethod
    def fields(self, n: int, k: int) -> dict[str, PackedArray]:
        """The stored arrays of one matrix. Raises ValueError when the format cannot hold it."""

    @abstractmethod
    def matrix_decode(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """`decode` of one matrix."""

    @abstractmethod
    def matrix_decode64(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """`decode64` of one matrix."""

    @abstractmethod
    def matrix_encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """`encode` of one float32 matrix."""

    def arrays(self, shape: Shape) -> dict[str, PackedArray]:
        """The stored arrays of a weight of logical `shape` [..., N, K]."""
        if len(shape) < 2:
            raise ValueError(f"{self.name}: holds matrices [..., N, K], not a tensor of shape {list(shape)}")
        lead = shape[:-2]
        fields = self.fields(shape[-2], shape[-1])
        return {name: replace(array, shape=(*lead, *array.shape)) for name, array in fields.items()}

    def bytes_per_weight(self, shape: Shape) -> float:
        """Resident bytes per weight at `shape`, without what depends on the data."""
        return sum(array.nbytes for array in self.arrays(shape).values() if array.resident) / math.prod(shape)

    def check(self, arrays: Arrays, shape: Shape) -> None:
        """Any values are fine, unless a format says otherwise."""
        self.fits(arrays, shape)

    def fits(self, arrays: Arrays, shape: Shape) -> None:
        """Raises ValueError when an array is missing or has another dtype or shape than the format's."""
        for name, packed in self.arrays(shape).items():
            if name not in arrays:
                if packed.optional or not packed.resident:
                    continue
                raise ValueError(f"{self.name}: the array {packed.suffix!r} is missing")
            array = arrays[name]
            trailing = array.shape[array.ndim - len(packed.shape) :] if array.ndim >= len(packed.shape) else array.shape
            if array.dtype != packed.dtype or not packed.fits(trailing):
                expected = f"{packed.dtype} {list(packed.shape)}"
                raise ValueError(f"{self.name}: {packed.suffix!r} is {array.dtype} {list(array.shape)}, not {expected}")

    @property
    def loads_as(self) -> str:
        """This format."""
        return self.name

    def load(self, arrays: Arrays, shape: Shape) -> dict[str, np.ndarray]:
        """The resident arrays."""
        return {name: array for name, _, array in self._resident(arrays, shape)}

    def decode(self, arrays: Arrays, shape: Shape) -> np.ndarray:
        """The float32 values by the published formula."""
        return self._each(self.matrix_decode, arrays, shape)

    def decode64(self, arrays: Arrays, shape: Shape) -> np.ndarray:
        """The real values in float64."""
        return self._each(self.matrix_decode64, arrays, shape)

    def encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The packed arrays nearest to float32 `values` [..., N, K]."""
        values = np.asarray(values, np.float32)
        self.arrays(values.shape)
        if values.ndim == 2:
            return self.matrix_encode(values)
        parts = [self.encode(part) for part in values]
        return {name: np.stack([part[name] for part in parts]) for name in parts[0]}

    def slice(self, arrays: Arrays, shape: Shape, axis: int, start: int, stop: int) -> dict[str, np.ndarray]:
        """The packed arrays of the values `start:stop` along `axis`: views."""
        self._check_cuts(shape, axis, (start, stop))
        return {
            name: array[_index(array, packed, shape, axis, start, stop)]
            for name, packed, array in self._resident(arrays, shape)
        }

    def pad(self, arrays: Arrays, shape: Shape, axis: int, size: int) -> dict[str, np.ndarray]:
        """The packed arrays with zero weights appended up to `size` along `axis`."""
        grown = self.arrays((*shape[:axis], size, *shape[axis + 1 :]))
        out = {}
        for name, packed, array in self._resident(arrays, shape):
            trailing = len(packed.shape)
            widths = [(0, 0)] * (array.ndim - trailing)
            widths += [
                (0, 0 if old == ANY else new - old) for old, new in zip(packed.shape, grown[name].shape, strict=True)
            ]
            fill = np.asarray(packed.fill).astype(array.dtype)
            out[name] = np.pad(array, widths, constant_values=fill) if any(map(any, widths)) else array
        return out

    def concatenate(self, parts: Sequence[Arrays], shapes: Sequence[Shape], axis: int) -> dict[str, np.ndarray]:
        """The packed arrays of the parts, one after the other along `axis`; all but the last fill their blocks."""
        shape = shapes[0]
        self._check_cuts((*shape[:axis], 0, *shape[axis + 1 :]), axis, [part[axis] for part in shapes[:-1]])
        out = {}
        for name, packed, first in self._resident(parts[0], shape):
            place = _place(packed, shape, axis)
            arrays = [part[name] for part in parts]
            if place is not None:
                out[name] = np.concatenate(arrays, axis=first.ndim - len(packed.shape) + place)
            elif all(array.tobytes() == first.tobytes() for array in arrays):
                out[name] = first
            else:
                raise ValueError(f"{self.name}: the parts have different {packed.suffix!r}; keep them apart")
        return out

    def unit(self, axis: int) -> int:
        """Cuts along `axis` (0: N, 1: K) must be multiples of this."""
        dims = (dim for array in self.fields(*self._example()).values() for dim in array.dims if array.resident)
        return math.lcm(*(dim.per for dim in dims if dim is not None and dim.axis == axis))

    def cut(self, shape: Shape, axis: int, bounds: Sequence[int]) -> Format:
        """This format, when it can be cut at `bounds`."""
        self._check_cuts(shape, axis, bounds)
        return self

    def recut(self, arrays: Arrays, shape: Shape, axis: int, bounds: Sequence[int]) -> dict[str, np.ndarray]:
        """The arrays as they are, since the format stays."""
        self.cut(shape, axis, bounds)
        return dict(arrays)

    def rows(
        self, arrays: Arrays, shape: Shape, start: Array, count: int, lead: Sequence[Array] = ()
    ) -> Mapping[str, Any]:
        """The arrays cut to `count` rows from `start` of the matrix at `lead`."""
        out = {}
        for name, packed in self.fields(*shape[-2:]).items():
            if not packed.resident or name not in arrays:
                continue
            place, dim = next(((i, d) for i, d in enumerate(packed.dims) if d is not None and d.axis == 0), (0, None))
            if dim is None:
                out[name] = at(arrays[name], lead)
            else:
                first = start * dim.entries // dim.per
                out[name] = block(arrays[name], lead, place, first, dim.index(count))
        return out

    @abstractmethod
    def operand(self, block: Arrays, shape: Shape) -> Array:
        """The values that meet the activations."""

    def scales(self, block: Arrays, shape: Shape) -> Array:
        """No format without a group has scales."""
        raise ValueError(f"{self.name}: its scales are inside the operand")

    def prepare(self, x: Array, arrays: Arrays, shape: Shape) -> Activations:
        """The rows as they are."""
        return Activations(x)

    def epilogue(self, y: Array, arrays: Arrays, shape: Shape) -> Array:
        """The sums as they are."""
        return y

    def _example(self) -> tuple[int, int]:
        """(N, K) of a matrix that the format can hold."""
        return 1024, 1024

    def _check_cuts(self, shape: Shape, axis: int, bounds: Sequence[int]) -> None:
        matrix_axis = axis - (len(shape) - 2)
        if matrix_axis < 0:
            return
        unit = self.unit(matrix_axis)
        for bound in bounds:
            if bound % unit and bound != shape[axis]:
                raise ValueError(
                    f"{self.name}: cannot be cut at {bound} along {AXES[matrix_axis]}; cuts are multiples of {unit}"
                )

    def _resident(self, arrays: Arrays, shape: Shape) -> list[tuple[str, PackedArray, Any]]:
        packed = self.arrays(shape).items()
        return [(name, array, arrays[name]) for name, array in packed if array.resident and name in arrays]

    def _each(self, one: Callable[[Arrays, int, int], np.ndarray], arrays: Arrays, shape: Shape) -> np.ndarray:
        """`one` for every matrix of arrays that may have leading axes: [..., N, K]."""
        n, k = shape[-2:]
        payload, packed = next(iter(self.fields(n, k).items()))
        lead = arrays[payload].shape[: arrays[payload].ndim - len(packed.shape)]
        if not lead:
            return one(arrays, n, k)
        matrices = [
            one({name: np.asarray(array[index]) for name, array in arrays.items()}, n, k)
            for index in itertools.product(*map(range, lead))
        ]
        return np.stack(matrices).reshape(*lead, n, k)


def _place(packed: PackedArray, shape: Shape, axis: int) -> int | None:
    """Which of the array's own dimensions runs along logical `axis`; None if none does."""
    matrix_axis = axis - (len(shape) - 2)
    if matrix_axis < 0:
        return axis
    lead = len(shape) - 2
    return next((lead + i for i, dim in enumerate(packed.dims) if dim is not None and dim.axis == matrix_axis), None)


def _index(array: Any, packed: PackedArray, shape: Shape, axis: int, start: int, stop: int) -> tuple[Any, ...]:
    place = _place(packed, shape, axis)
    if place is None:
        return (...,)
    lead = len(shape) - 2
    dim = packed.dims[place - lead] if place >= lead else None
    cut = slice(start, stop) if dim is None else slice(dim.index(start), dim.index(stop))
    return (slice(None),) * (array.ndim - len(packed.shape) + place) + (cut,)
