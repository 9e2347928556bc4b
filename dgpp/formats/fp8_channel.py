"""FP8 E4M3 with one scale per output channel: compressed-tensors `float-quantized`, strategy "channel".

Layout: `codes` F8_E4M3 [N, K] under ".weight"; `scale` BF16 (or F32) [N, 1] under ".weight_scale", which multiplies.
Published value: bf16(fl32(code * scale)). The operand is the bare code, exact in bf16 and f16; the scale is applied
once to the finished sum, one rounding fewer than per weight. NaN codes and scales propagate. 1 + 2/K bytes per weight.

Encoder: scale = amax of the row / 448, rounded to the scale's dtype, 1 for a zero row; codes saturate.
Slice rule: anywhere; a slice of columns keeps all scales.
Source: compressed-tensors 0.20.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgpp.formats.arrays import Array, divided
from dgpp.formats.base import Along, Arrays, PackedArray, Shape
from dgpp.formats.dense import DTYPES
from dgpp.formats.fp8_scaled import FP8Scaled
from dgpp.formats.minifloat import E4M3_MAX, e4m3_encode


@dataclass(frozen=True)
class FP8Channel(FP8Scaled):
    """FP8 with a `scale` (BF16 or F32) per row."""

    @property
    def name(self) -> str:
        """ "fp8_channel" or "fp8_channel_f32"."""
        return f"fp8_channel{self.suffix}"

    def fields(self, n: int, k: int) -> dict[str, PackedArray]:
        """`codes` and `scale`."""
        return {
            "codes": PackedArray("weight", "F8_E4M3", np.dtype(np.uint8), (n, k), (Along(0), Along(1))),
            "scale": PackedArray("weight_scale", self.scale, DTYPES[self.scale], (n, 1), (Along(0), None), 1),
        }

    def matrix_encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Each row scaled to its largest element."""
        amax = np.abs(values).max(1, keepdims=True, initial=0)
        scale = np.where(amax == 0, np.float32(1), divided(amax, np.float32(E4M3_MAX))).astype(DTYPES[self.scale])
        return {"codes": e4m3_encode(divided(values, scale.astype(np.float32))), "scale": scale}

    def epilogue(self, y: Array, arrays: Arrays, shape: Shape) -> Array:
        """Each output times the scale of its row."""
        return y * arrays["scale"].astype(np.float32)[:, 0]
