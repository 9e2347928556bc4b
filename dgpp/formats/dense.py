"""Unpacked tensors: one number per weight, of any rank, in a dtype that NumPy and JAX compute with.

Layout: field `values`, of the logical shape, row-major, under the module's name and ".weight"; the "bare" form is a
parameter that is named directly, such as a router's bias or a fused expert tensor. Decoding is exact, encoding rounds
to nearest, ties to even. Slice rule: any cut of any axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpp.formats.arrays import Array
from dgpp.formats.base import Along, Arrays, PackedArray, Shape
from dgpp.formats.matrix import MatrixFormat
from dgpp.formats.minifloat import BFLOAT16

DTYPES: dict[str, np.dtype[Any]] = {"BF16": BFLOAT16, "F16": np.dtype(np.float16), "F32": np.dtype(np.float32)}


@dataclass(frozen=True)
class Dense(MatrixFormat):
    """A tensor stored under header tag `tag`: BF16, F16 or F32."""

    tag: str
    bare: bool = False

    slice_rule = "rows and columns anywhere"

    @property
    def name(self) -> str:
        """E.g. "f32", or "f32_bare" for a tensor that is named directly."""
        return self.tag.lower() + ("_bare" if self.bare else "")

    @property
    def exact_in(self) -> tuple[str, ...]:
        """The type itself; float32 is exact in neither, so it has no linear."""
        return {"BF16": ("bf16",), "F16": ("f16",)}.get(self.tag, ())

    def fields(self, n: int, k: int) -> dict[str, PackedArray]:
        """One array `values` [N, K]."""
        return {"values": self._packed((n, k), (Along(0), Along(1)))}

    def arrays(self, shape: Shape) -> dict[str, PackedArray]:
        """One array `values` of the logical shape, whatever its rank."""
        return {"values": self._packed(shape, tuple(Along(axis) for axis in range(len(shape))))}

    def decode(self, arrays: Arrays, shape: Shape) -> np.ndarray:
        """The values as float32: exact, whatever their rank."""
        return arrays["values"].astype(np.float32)

    def decode64(self, arrays: Arrays, shape: Shape) -> np.ndarray:
        """The values as float64: exact, whatever their rank."""
        return arrays["values"].astype(np.float64)

    def encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The nearest value of the dtype, ties to even, whatever the rank."""
        return self.matrix_encode(values)

    def matrix_decode(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """The values as float32: exact."""
        return self.decode(arrays, (n, k))

    def matrix_decode64(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """The values as float64: exact."""
        return self.decode64(arrays, (n, k))

    def matrix_encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The nearest value of the dtype, ties to even."""
        with np.errstate(over="ignore", invalid="ignore"):
            return {"values": np.asarray(values).astype(DTYPES[self.tag])}

    def slice(self, arrays: Arrays, shape: Shape, axis: int, start: int, stop: int) -> dict[str, np.ndarray]:
        """The values `start:stop` along `axis`: a view."""
        index: tuple[Any, ...] = (..., slice(start, stop), *(slice(None),) * (len(shape) - axis - 1))
        return {"values": arrays["values"][index]}

    def pad(self, arrays: Arrays, shape: Shape, axis: int, size: int) -> dict[str, np.ndarray]:
        """The values followed by zeros, up to `size` along `axis`."""
        values = arrays["values"]
        widths = [(0, 0)] * values.ndim
        widths[values.ndim - len(shape) + axis] = (0, size - shape[axis])
        return {"values": np.pad(values, widths)}

    def concatenate(self, parts: Sequence[Arrays], shapes: Sequence[Shape], axis: int) -> dict[str, np.ndarray]:
        """The values of the parts, one after the other along `axis`."""
        arrays = [part["values"] for part in parts]
        return {"values": np.concatenate(arrays, axis=arrays[0].ndim - len(shapes[0]) + axis)}

    def operand(self, block: Arrays, shape: Shape) -> Array:
        """The values as float32."""
        return block["values"].astype(np.float32)

    def _check_cuts(self, shape: Shape, axis: int, bounds: Sequence[int]) -> None:
        """Any cut is fine."""

    def _packed(self, shape: Shape, dims: tuple[Along, ...]) -> PackedArray:
        return PackedArray("" if self.bare else "weight", self.tag, DTYPES[self.tag], shape, dims)
