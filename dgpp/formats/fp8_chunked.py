"""FP8 in 128 x 128 blocks, stored in chunks of rows whose grids of scales each begin anew (the fused QKV of MiMo-V2.6).

Layout: `codes` F8_E4M3 [N, K] under ".weight"; `scale` F32 [chunks * ceil(N / chunks / 128), ceil(K / 128)] under
".weight_scale_inv". A chunk of 3392 rows has 27 rows of scales, the last of them over 64 rows of weights; read as one
128-row grid every later chunk would get wrong scales. Values as `FP8Block`.

It loads as "fp8_block64x128", the same scales repeated so that every chunk begins on the grid; rows of a chunk are a
multiple of 64. Rows are cut in that form, columns on 128.
Source: docs/mimo_v26_flash_plan.md of AhmmedSamier/dgpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dgpp.formats.arrays import Array, library
from dgpp.formats.base import Along, Arrays, PackedArray, Shape
from dgpp.formats.fp8_block import FP8Block
from dgpp.formats.matrix import MatrixFormat

PART = FP8Block()
HELD = FP8Block(block_rows=64)


@dataclass(frozen=True)
class FP8Chunked(MatrixFormat):
    """FP8 blocks in `chunks` of rows."""

    chunks: int = 4

    exact_in = HELD.exact_in
    slice_rule = "loads as fp8_block64x128"

    @property
    def name(self) -> str:
        """E.g. "fp8_block128_chunks4"."""
        return f"{PART.name}_chunks{self.chunks}"

    @property
    def group(self) -> int | None:
        """As in the form it loads as."""
        return HELD.group

    @property
    def loads_as(self) -> str:
        """Blocks of 64 rows."""
        return HELD.name

    def load(self, arrays: Arrays, shape: Shape) -> dict[str, np.ndarray]:
        """The scales repeated onto one grid of 64 rows."""
        scale = arrays["scale"]
        lib = library(scale)
        rows = shape[-2] // self.chunks // HELD.block_rows
        parts = scale.reshape(*scale.shape[:-2], self.chunks, -1, scale.shape[-1])
        parts = lib.repeat(parts, PART.block_rows // HELD.block_rows, axis=-2)[..., :rows, :]
        return {"codes": arrays["codes"], "scale": parts.reshape(*scale.shape[:-2], -1, scale.shape[-1])}

    def fields(self, n: int, k: int) -> dict[str, PackedArray]:
        """`codes` and `scale`. The rows of a chunk must be a multiple of 64."""
        if n % (self.chunks * HELD.block_rows):
            raise ValueError(
                f"{self.name}: N = {n} is not {self.chunks} chunks of a multiple of {HELD.block_rows} rows"
            )
        fields = PART.fields(n, k)
        grid = (self.chunks * Along(0, PART.block_rows).index(n // self.chunks), fields["scale"].shape[1])
        return {**fields, "scale": replace(fields["scale"], shape=grid, dims=(None, fields["scale"].dims[1]))}

    def matrix_decode(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """As `FP8Block`."""
        return HELD.matrix_decode(self.load(arrays, (n, k)), n, k)

    def matrix_decode64(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """As `FP8Block`."""
        return HELD.matrix_decode64(self.load(arrays, (n, k)), n, k)

    def matrix_encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Each chunk as a matrix of its own."""
        parts = [PART.matrix_encode(part) for part in np.split(values, self.chunks)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def rows(self, arrays: Arrays, shape: Shape, start: Array, count: int, lead: Sequence[Array] = ()) -> Arrays:
        """As in the form it loads as."""
        return HELD.rows(self.load(arrays, shape), shape, start, count, lead)

    def operand(self, block: Arrays, shape: Shape) -> Array:
        """The codes' values."""
        return HELD.operand(block, shape)

    def scales(self, block: Arrays, shape: Shape) -> Array:
        """The scales of the rows' blocks."""
        return HELD.scales(block, shape)

    def pad(self, arrays: Arrays, shape: Shape, axis: int, size: int) -> dict[str, np.ndarray]:
        """Columns only."""
        self._check_cuts(shape, axis, (size,))
        return super().pad(arrays, shape, axis, size)

    def _check_cuts(self, shape: Shape, axis: int, bounds: Sequence[int]) -> None:
        if axis == len(shape) - 2 and any(bound not in (0, shape[axis]) for bound in bounds):
            raise ValueError(f"{self.name}: cannot be cut along N in chunks; load it as {self.loads_as} first")
        super()._check_cuts(shape, axis, bounds)
