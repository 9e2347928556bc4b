"""FP8 E4M3 with one scale per block of rows x columns: 128x128, 32x32, or groups of one row.

Layout: `codes` F8_E4M3 [N, K] under ".weight"; `scale` [ceil(N/rows), ceil(K/columns)], which multiplies:
- F32 or BF16 under ".weight_scale_inv" (the fp8 releases of GLM, Qwen, MiMo). Published value:
  bf16(fl32(code * scale)), two roundings. The operand is the bare code, exact in bf16 and f16, and the scale is applied
  to the finished sum of each block's columns.
- E8M0 under ".scale" (DeepSeek: 128x128 in V4, 32x32 in V4.1, groups of 32 in the Engram tables). The value
  code * 2^(b-127) is exact, in bf16 for bytes 3 to 246, so the scale is inside the operand.
A NaN code or scale makes its weights NaN; there is no infinity. 1 + scale bytes / block bytes per weight.

Encoder: scale = fl32(amax / 448), 1 for a zero block; code = e4m3(fl32(w / scale)), saturating. E8M0: the least power
of two that is not below fl32(max(amax, 1e-4) * fl32(1/448)).
Slice rule: on block borders. Elsewhere the grid is refined to the common divisor of the cuts by repeating scales,
which changes no value; columns need a divisor of at least 16, so that 16 neighbours share a scale.
Source: transformers 5.24 integrations/finegrained_fp8.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dgpp.formats.arrays import Array, at, block, divided, library
from dgpp.formats.base import Along, Arrays, PackedArray, Shape
from dgpp.formats.matrix import AXES, MatrixFormat
from dgpp.formats.minifloat import (
    BFLOAT16,
    E4M3_MAX,
    E8M0_TABLE,
    e4m3_decode,
    e4m3_encode,
    e8m0_ceil,
    times_e8m0,
    to_bfloat16,
)

SCALES: dict[str, tuple[str, str, np.dtype[Any], float]] = {  # suffix, tag, dtype, fill
    "F32": ("weight_scale_inv", "F32", np.dtype(np.float32), 1),
    "BF16": ("weight_scale_inv", "BF16", BFLOAT16, 1),
    "E8M0": ("scale", "F8_E8M0", np.dtype(np.uint8), 127),
}
LEAST_COLUMNS = 16


@dataclass(frozen=True)
class FP8Block(MatrixFormat):
    """FP8 with a `scale` (F32, BF16 or E8M0) per block of `block_rows` x `block_columns` weights."""

    block_rows: int = 128
    block_columns: int = 128
    scale: str = "F32"

    slice_rule = "on block borders; elsewhere blocks are refined to the common divisor (columns >= 16)"

    @property
    def name(self) -> str:
        """E.g. "fp8_block128", "fp8_block32_e8m0", "fp8_block128x32_bf16", "fp8_group32_e8m0"."""
        rows, columns = self.block_rows, self.block_columns
        grid = f"block{rows}" if rows == columns else f"group{columns}" if rows == 1 else f"block{rows}x{columns}"
        return f"fp8_{grid}" + ("" if self.scale == "F32" else f"_{self.scale.lower()}")

    @property
    def exact_in(self) -> tuple[str, ...]:
        """Bare codes fit both; with a power of two in it the operand fits bf16."""
        return ("bf16",) if self.scale == "E8M0" else ("bf16", "f16")

    @property
    def group(self) -> int | None:
        """The block's columns; None when the scale is in the operand."""
        return None if self.scale == "E8M0" else self.block_columns

    def fields(self, n: int, k: int) -> dict[str, PackedArray]:
        """`codes` and `scale`."""
        suffix, tag, dtype, fill = SCALES[self.scale]
        dims = Along(0, self.block_rows), Along(1, self.block_columns)
        grid = (dims[0].index(n), dims[1].index(k))
        also = ("U8",) if self.scale == "E8M0" else ()
        return {
            "codes": PackedArray("weight", "F8_E4M3", np.dtype(np.uint8), (n, k), (Along(0), Along(1))),
            "scale": PackedArray(suffix, tag, dtype, grid, dims, fill, also=also),
        }

    def matrix_decode(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """bf16(fl32(code * scale)); with E8M0 the exact product."""
        codes = e4m3_decode(arrays["codes"])
        scale = self._spread(arrays["scale"], n, k)
        if self.scale == "E8M0":
            return times_e8m0(codes, scale)
        with np.errstate(invalid="ignore", over="ignore"):
            return to_bfloat16(codes * scale.astype(np.float32))

    def matrix_decode64(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """code * scale: exact."""
        scale = self._spread(arrays["scale"], n, k)
        factor = E8M0_TABLE[scale] if self.scale == "E8M0" else scale.astype(np.float64)
        return e4m3_decode(arrays["codes"]).astype(np.float64) * factor

    def matrix_encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Each block scaled to its largest element."""
        n, k = values.shape
        amax = self._block_amax(values)
        if self.scale == "E8M0":
            stored = e8m0_ceil(np.maximum(amax, np.float32(1e-4)) * np.float32(1 / E4M3_MAX))
            factor = E8M0_TABLE[stored].astype(np.float32)
        else:
            stored = np.where(amax == 0, np.float32(1), divided(amax, np.float32(E4M3_MAX)))
            stored = stored.astype(SCALES[self.scale][2])
            factor = stored.astype(np.float32)
        return {"codes": e4m3_encode(divided(values, self._spread(factor, n, k))), "scale": stored}

    def unit(self, axis: int) -> int:
        """The block's rows or columns."""
        return (self.block_rows, self.block_columns)[axis]

    def cut(self, shape: Shape, axis: int, bounds: Sequence[int]) -> FP8Block:
        """The format with blocks refined to the common divisor of the cuts."""
        matrix_axis = axis - (len(shape) - 2)
        if matrix_axis < 0:
            return self
        unit = self.unit(matrix_axis)
        refined = math.gcd(unit, *(bound for bound in bounds if bound != shape[axis]))
        if matrix_axis == 1 and refined < min(unit, LEAST_COLUMNS):
            raise ValueError(
                f"{self.name}: cannot be cut at {list(bounds)} along {AXES[matrix_axis]}; cuts are multiples of "
                f"{LEAST_COLUMNS} at least"
            )
        return replace(self, block_rows=refined) if matrix_axis == 0 else replace(self, block_columns=refined)

    def recut(self, arrays: Arrays, shape: Shape, axis: int, bounds: Sequence[int]) -> dict[str, np.ndarray]:
        """The scales repeated onto the finer grid."""
        finer = self.cut(shape, axis, bounds)
        scale = arrays["scale"]
        for i in (0, 1):
            repeats = self.unit(i) // finer.unit(i)
            if repeats > 1:
                size = finer.arrays(shape)["scale"].shape[i - 2]
                scale = np.repeat(scale, repeats, axis=i - 2)
                scale = scale[..., :size, :] if i == 0 else scale[..., :size]
        return {"codes": arrays["codes"], "scale": scale}

    def rows(self, arrays: Arrays, shape: Shape, start: Array, count: int, lead: Sequence[Array] = ()) -> Arrays:
        """`codes` [C, K] and the scale of every one of the rows [C, ceil(K/columns)]."""
        scale = at(arrays["scale"], lead)
        lib = library(scale)
        rows = (start + lib.arange(count)) // self.block_rows
        return {"codes": block(arrays["codes"], lead, 0, start, count), "scale": scale[rows]}

    def operand(self, block: Arrays, shape: Shape) -> Array:
        """The codes' values, with the power of two where the scale is one."""
        codes = e4m3_decode(block["codes"])
        if self.scale != "E8M0":
            return codes
        lib = library(codes)
        return times_e8m0(codes, lib.repeat(block["scale"], self.block_columns, axis=-1)[..., : shape[-1]])

    def scales(self, block: Arrays, shape: Shape) -> Array:
        """The scales of the rows' blocks."""
        if self.group is None:
            return super().scales(block, shape)
        return block["scale"].astype(np.float32)

    def _spread(self, scale: np.ndarray, n: int, k: int) -> np.ndarray:
        """The grid repeated to one scale per weight [N, K]."""
        return np.repeat(np.repeat(scale, self.block_rows, 0)[:n], self.block_columns, 1)[:, :k]

    def _block_amax(self, values: np.ndarray) -> np.ndarray:
        rows, columns = self.block_rows, self.block_columns
        padded = np.pad(
            np.abs(values), [(0, -size % unit) for size, unit in zip(values.shape, (rows, columns), strict=True)]
        )
        return padded.reshape(padded.shape[0] // rows, rows, -1, columns).max((1, 3))
