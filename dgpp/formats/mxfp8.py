"""MXFP8: E4M3 codes in groups of 32 along K under a power-of-two scale.

Layout: `codes` F8_E4M3 [N, K] under ".weight"; `scale` U8 (E8M0) [N, K/32] under ".weight_scale".
Value: e4m3 * 2^(b - 127), exact in float32, and in bf16 for bytes 3 to 246. NaN codes, and byte 255, give NaN.
1.03125 bytes per weight.

Encoder: b = ceil(log2(amax / 448)) + 127, 0 for a zero block, so nothing saturates; codes to nearest, ties to even.
Slice rule: rows anywhere, columns on 32.
Source: OCP Microscaling Formats v1.0; nvidia-modelopt 0.47 qtensor/mxfp8_tensor.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgpp.formats.arrays import Array, divided, library
from dgpp.formats.base import Along, Arrays, PackedArray, Shape
from dgpp.formats.matrix import MatrixFormat
from dgpp.formats.minifloat import E4M3_MAX, E8M0_TABLE, e4m3_decode, e4m3_encode, e8m0_ceil, times_e8m0

GROUP = 32


@dataclass(frozen=True)
class MXFP8(MatrixFormat):
    """The MXFP8 format of modelopt and compressed-tensors."""

    name = "mxfp8"
    exact_in = ("bf16",)
    slice_rule = "rows anywhere, columns on 32"

    def fields(self, n: int, k: int) -> dict[str, PackedArray]:
        """`codes` and `scale`. K must be a multiple of 32."""
        if k % GROUP:
            raise ValueError(f"{self.name}: K = {k} is not a multiple of {GROUP}")
        u8, dims = np.dtype(np.uint8), (Along(0), Along(1, GROUP))
        return {
            "codes": PackedArray("weight", "F8_E4M3", u8, (n, k), (Along(0), Along(1))),
            "scale": PackedArray("weight_scale", "U8", u8, (n, k // GROUP), dims, 127, also=("F8_E8M0",)),
        }

    def matrix_decode(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """e4m3 * 2^(b - 127): exact."""
        return np.asarray(self.operand(arrays, (n, k)))

    def matrix_decode64(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """e4m3 * 2^(b - 127): exact."""
        return e4m3_decode(arrays["codes"]).astype(np.float64) * np.repeat(E8M0_TABLE[arrays["scale"]], GROUP, 1)

    def matrix_encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The least scale under which no element of the group saturates."""
        amax = np.abs(values).reshape(values.shape[0], -1, GROUP).max(-1)
        scale = e8m0_ceil(divided(amax, np.float32(E4M3_MAX)))
        scaled = values.astype(np.float64) / np.repeat(E8M0_TABLE[scale], GROUP, 1)
        return {"codes": e4m3_encode(scaled.astype(np.float32)), "scale": scale}

    def operand(self, block: Arrays, shape: Shape) -> Array:
        """e4m3 * 2^(b - 127)."""
        codes = e4m3_decode(block["codes"])
        lib = library(codes)
        return times_e8m0(codes, lib.repeat(block["scale"], GROUP, axis=-1))
