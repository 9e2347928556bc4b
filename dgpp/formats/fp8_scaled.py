"""What FP8 E4M3 weights have in common whose scales leave the sum: one per output channel, or one for the tensor.

Published value: bf16(fl32(code * scale)). The operand is the bare code, exact in bf16 and f16; the scale is applied
once to the finished sum, one rounding fewer than per weight. NaN codes and scales propagate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgpp.formats.arrays import Array
from dgpp.formats.base import Arrays, Shape
from dgpp.formats.matrix import MatrixFormat
from dgpp.formats.minifloat import e4m3_decode, to_bfloat16


@dataclass(frozen=True)
class FP8Scaled(MatrixFormat):
    """FP8 codes and a `scale` (BF16 or F32) that broadcasts over them."""

    scale: str = "BF16"

    exact_in = ("bf16", "f16")
    slice_rule = "rows and columns anywhere"

    @property
    def suffix(self) -> str:
        """What the name of a form with another scale dtype than BF16 ends in."""
        return "" if self.scale == "BF16" else f"_{self.scale.lower()}"

    def matrix_decode(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """bf16(fl32(code * scale))."""
        with np.errstate(invalid="ignore", over="ignore"):
            return to_bfloat16(e4m3_decode(arrays["codes"]) * arrays["scale"].astype(np.float32))

    def matrix_decode64(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """code * scale: exact."""
        return e4m3_decode(arrays["codes"]).astype(np.float64) * arrays["scale"].astype(np.float64)

    def operand(self, block: Arrays, shape: Shape) -> Array:
        """The codes' values."""
        return e4m3_decode(block["codes"])
