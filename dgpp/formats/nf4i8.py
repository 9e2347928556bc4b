"""NF4I8: four-bit indices into sixteen int8 levels, in a Hadamard basis (release GLM-5.3-NF4I8-GPTQ-H32-g128).

Layout: `indices` I32 [N, K/8] under ".weight_indices", low nibble first; `scale` BF16 [N, K/128] under
".weight_scale"; ".weight_shape" I64 [2], checked and dropped. The levels are rint(127 * NF4).
Rotated value: level * scale, exact in float32. The stored matrix is W H with H block-diagonal H32 / sqrt(32), so
`prepare` rotates the activations: butterflies in float32, times fl32(1 / sqrt(32)), one rounding to bf16. `decode`
gives W itself: the rotated values turned back in float64, rounded once. The operand is the level, exact in bf16 and
f16; each group's finished sum is multiplied by its scale. 0.515625 bytes per weight.

Encoder: in the rotated basis, scale = amax / 127 as BF16, then the nearest level.
Slice rule: rows anywhere, columns on 128.
Source: kernels of AhmmedSamier/dgpp, src/kernels/hadamard32.hpp and packq_gemv.cuh.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgpp.formats.arrays import Array, divided, lookup
from dgpp.formats.base import Activations, Along, Arrays, PackedArray, Shape
from dgpp.formats.bitstream import pack, unpack
from dgpp.formats.hadamard import SCALE_32, butterflies, orthonormal64
from dgpp.formats.matrix import MatrixFormat
from dgpp.formats.minifloat import BFLOAT16, to_bfloat16

GROUP = 128
SPAN = 32
LEVELS = np.array([-127, -88, -67, -50, -36, -23, -12, 0, 10, 20, 31, 43, 56, 71, 92, 127], np.float32)


def rotate(x: Array) -> Array:
    """H32 / sqrt(32) of every 32 elements of bfloat16 rows x [R, K], rounded once to bf16; as float32 values."""
    return to_bfloat16(butterflies(x.astype(np.float32), SPAN) * SCALE_32)


class LevelFormat(MatrixFormat):
    """Indices of `bits` into a table of integer levels, with a BF16 scale per 128, in the basis of H32."""

    exact_in = ("bf16", "f16")
    slice_rule = "rows anywhere, columns on 128"
    bits: int

    @property
    def levels(self) -> np.ndarray:
        """float32 [2^bits], ascending."""
        raise NotImplementedError

    @property
    def group(self) -> int:
        """Elements under one scale."""
        return GROUP

    def fields(self, n: int, k: int) -> dict[str, PackedArray]:
        """`indices`, `scale` and the checked shape. K must be a multiple of 128."""
        if k % GROUP:
            raise ValueError(f"{self.name}: K = {k} is not a multiple of {GROUP}")
        words = Along(1, GROUP, GROUP * self.bits // 32)
        return {
            "indices": PackedArray("weight_indices", "I32", np.dtype(np.int32), (n, words.index(k)), (Along(0), words)),
            "scale": PackedArray("weight_scale", "BF16", BFLOAT16, (n, k // GROUP), (Along(0), Along(1, GROUP))),
            "shape": PackedArray("weight_shape", "I64", np.dtype(np.int64), (2,), (None,), resident=False),
        }

    def check(self, arrays: Arrays, shape: Shape) -> None:
        """Also refuses a `weight_shape` that is not [N, K]."""
        super().check(arrays, shape)
        if "shape" in arrays and not (np.asarray(arrays["shape"]) == shape[-2:]).all():
            raise ValueError(f"{self.name}: weight_shape is {arrays['shape'].tolist()}, not {list(shape[-2:])}")

    def rotated(self, arrays: Arrays, shape: Shape) -> np.ndarray:
        """level * scale, the exact values in the rotated basis, float32 [N, K]."""
        return np.asarray(self.operand(arrays, shape)) * np.repeat(arrays["scale"].astype(np.float32), GROUP, 1)

    def matrix_decode(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """The values turned back, rounded once."""
        return self.matrix_decode64(arrays, n, k).astype(np.float32)

    def matrix_decode64(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """The values turned back, to about 1e-15 of the largest of each 32."""
        return orthonormal64(self.rotated(arrays, (n, k)), SPAN, 1)

    def matrix_encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The nearest levels in the rotated basis."""
        n, k = values.shape
        turned = orthonormal64(values, SPAN, 1).reshape(n, -1, GROUP).astype(np.float32)
        scale = divided(np.abs(turned).max(-1), np.abs(self.levels).max()).astype(BFLOAT16)
        factor = scale.astype(np.float32)[..., None]
        wanted = divided(turned, np.where(factor == 0, np.float32(1), factor))
        indices = np.searchsorted((self.levels[1:] + self.levels[:-1]) / 2, wanted.reshape(n, k))
        return {
            "indices": pack(indices, self.bits, np.int32),
            "scale": scale,
            "shape": np.array([n, k], np.int64),
        }

    def operand(self, block: Arrays, shape: Shape) -> Array:
        """The levels."""
        return lookup(self.levels, unpack(block["indices"], self.bits, shape[-1]))

    def scales(self, block: Arrays, shape: Shape) -> Array:
        """The scales of the groups."""
        return block["scale"].astype(np.float32)


@dataclass(frozen=True)
class NF4I8(LevelFormat):
    """The NF4I8 format."""

    name = "nf4i8"
    bits = 4

    @property
    def levels(self) -> np.ndarray:
        """The sixteen levels."""
        return LEVELS

    def prepare(self, x: Array, arrays: Arrays, shape: Shape) -> Activations:
        """The rotated rows."""
        return Activations(rotate(x))
