"""BF16: one bfloat16 per weight, as most releases store their unquantized tensors.

Layout: field `values`, dtype BF16, shape [N, K], row-major. A bfloat16 is the upper half of a float32 (1 sign,
8 exponent, 7 mantissa bits), so decoding is exact and encoding rounds to nearest, ties to even.
Slice rule: any cut of any axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from dgpp.formats.base import PackedArray, Shape

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@dataclass(frozen=True)
class BF16:
    """The BF16 format."""

    name: str = "bf16"

    def arrays(self, shape: Shape) -> dict[str, PackedArray]:
        """One array `values` of the logical shape."""
        return {"values": PackedArray("weight", "BF16", BFLOAT16, shape)}

    def decode(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """The values as float32: exact."""
        return arrays["values"].astype(np.float32)

    def encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The nearest bfloat16 of each value, ties to even."""
        return {"values": values.astype(BFLOAT16)}

    def slice(
        self, arrays: Mapping[str, np.ndarray], shape: Shape, axis: int, start: int, stop: int
    ) -> dict[str, np.ndarray]:
        """The values `start:stop` along `axis`: a view."""
        index = (..., slice(start, stop), *(slice(None),) * (len(shape) - axis - 1))
        return {"values": arrays["values"][index]}

    def pad(self, arrays: Mapping[str, np.ndarray], shape: Shape, axis: int, size: int) -> dict[str, np.ndarray]:
        """The values followed by zeros, up to `size` along `axis`."""
        values = arrays["values"]
        widths = [(0, 0)] * values.ndim
        widths[values.ndim - len(shape) + axis] = (0, size - shape[axis])
        return {"values": np.pad(values, widths)}

    def concatenate(self, parts: Sequence[Mapping[str, np.ndarray]], shape: Shape, axis: int) -> dict[str, np.ndarray]:
        """The values of the parts, one after the other along `axis`."""
        arrays = [part["values"] for part in parts]
        return {"values": np.concatenate(arrays, axis=arrays[0].ndim - len(shape) + axis)}
