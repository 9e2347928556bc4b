"""FP8 E4M3 with one scale for the whole tensor: n-gram embedding tables, and per-tensor quantized linears.

Layout: `codes` F8_E4M3 [N, K] under ".weight"; `scale` BF16 [1] or F32 [] under ".weight_scale", which multiplies.
Published value: bf16(code * scale), one rounding with a BF16 scale (a product of 12 significant bits is exact in
float32). The operand is the bare code, exact in bf16 and f16; the scale is applied once to the finished sum.
NaN propagates. 1 byte per weight.

Encoder: scale = amax / 448 rounded to the scale's dtype, 1 for a zero tensor; codes saturate.
Slice rule: anywhere; every slice keeps the scale. The parts of a table that is stored in shards share one scale.
Source: transformers 5.24 integrations/finegrained_fp8.py (embeddings).
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
class FP8Tensor(FP8Scaled):
    """FP8 with one `scale` (BF16 or F32)."""

    @property
    def name(self) -> str:
        """ "fp8_tensor" or "fp8_tensor_f32"."""
        return f"fp8_tensor{self.suffix}"

    def fields(self, n: int, k: int) -> dict[str, PackedArray]:
        """`codes`, `scale`, and the activation scale that W8A8 exports add, which is not used."""
        shape, dims = ((1,), (None,)) if self.scale == "BF16" else ((), ())
        dtype = DTYPES[self.scale]
        return {
            "codes": PackedArray("weight", "F8_E4M3", np.dtype(np.uint8), (n, k), (Along(0), Along(1))),
            "scale": PackedArray("weight_scale", self.scale, dtype, shape, dims, 1),
            "input_scale": PackedArray("input_scale", "F32", np.dtype(np.float32), (), resident=False, optional=True),
        }

    def matrix_encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The tensor scaled to its largest element."""
        amax = np.abs(values).max(initial=0)
        scale = np.where(amax == 0, np.float32(1), divided(amax, np.float32(E4M3_MAX)))
        scale = scale.reshape(self.fields(*values.shape)["scale"].shape).astype(DTYPES[self.scale])
        return {"codes": e4m3_encode(divided(values, scale.astype(np.float32))), "scale": scale}

    def epilogue(self, y: Array, arrays: Arrays, shape: Shape) -> Array:
        """Every output times the scale."""
        return y * arrays["scale"].astype(np.float32)
