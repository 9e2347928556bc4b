"""NVFP4: E2M1 codes in groups of 16 under an E4M3 scale, and one float32 scale per tensor, in two serialisations.

Layout: `codes` U8 [N, K/2], low nibble first; `scale` F8_E4M3 [N, K/16], row-major; `global_scale` F32.
- "nvfp4" (modelopt): ".weight", ".weight_scale", ".weight_scale_2" []. The global scale MULTIPLIES (amax / 2688).
  Published value: bf16(fl32(e2m1 * s)) with s = fl32(e4m3 * global).
- "nvfp4_divisor" (compressed-tensors `nvfp4-pack-quantized`): ".weight_packed", ".weight_scale",
  ".weight_global_scale" [1]. It DIVIDES (2688 / amax): s = fl32(e4m3 / global).
Activation scales (".input_scale", ".input_global_scale") belong to W4A4 kernels and are not used.

Kernel: the operand e2m1 * e4m3 is exact in bf16 and in f16 (at most 6 significant bits, 2^-10 to 2688); the finished
sum is divided once by g, which is the divisor, or fl32(1 / multiplier). So equal weights give equal bits in both
serialisations. A NaN scale makes its 16 weights NaN. 0.5625 bytes per weight.

Encoder: global from the amax of the tensor; block scale = amax / 6 under the global, as E4M3 within 2^-9 to 448, 1 for
a zero block; code = e2m1(fl32(w / s)), with +0 for zeros.
Slice rule: rows anywhere, columns on 16; every slice keeps the global scale, and weights of different global scales
(gate and up) stay apart.
Source: nvidia-modelopt 0.47 qtensor/nvfp4_tensor.py; compressed-tensors 0.20 NVFP4PackedCompressor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgpp.formats.arrays import Array, divided, library
from dgpp.formats.base import Along, Arrays, PackedArray, Shape
from dgpp.formats.bitstream import pack, unpack
from dgpp.formats.matrix import MatrixFormat
from dgpp.formats.minifloat import (
    E2M1_MAX,
    E4M3_MAX,
    e2m1_decode,
    e2m1_encode,
    e4m3_decode,
    e4m3_encode,
    to_bfloat16,
)

GROUP = 16
ONE = 0x38  # E4M3 code of 1
LARGEST = np.float32(E2M1_MAX * E4M3_MAX)


@dataclass(frozen=True)
class NVFP4(MatrixFormat):
    """NVFP4 whose global scale multiplies, or divides when it is a `divisor`."""

    divisor: bool = False

    exact_in = ("bf16", "f16")
    slice_rule = "rows anywhere, columns on 16"

    @property
    def name(self) -> str:
        """ "nvfp4" or "nvfp4_divisor"."""
        return "nvfp4_divisor" if self.divisor else "nvfp4"

    def fields(self, n: int, k: int) -> dict[str, PackedArray]:
        """`codes`, `scale`, `global_scale`, and the unused activation scale. K must be a multiple of 16."""
        if k % GROUP:
            raise ValueError(f"{self.name}: K = {k} is not a multiple of {GROUP}")
        f32, u8 = np.dtype(np.float32), np.dtype(np.uint8)
        weight, global_scale, input_scale, shape = (
            ("weight_packed", "weight_global_scale", "input_global_scale", (1,))
            if self.divisor
            else ("weight", "weight_scale_2", "input_scale", ())
        )
        dims = (None,) * len(shape)
        return {
            "codes": PackedArray(weight, "U8", u8, (n, k // 2), (Along(0), Along(1, 2))),
            "scale": PackedArray("weight_scale", "F8_E4M3", u8, (n, k // GROUP), (Along(0), Along(1, GROUP)), ONE),
            "global_scale": PackedArray(global_scale, "F32", f32, shape, dims),
            "input_scale": PackedArray(input_scale, "F32", f32, shape, dims, resident=False, optional=True),
        }

    def check(self, arrays: Arrays, shape: Shape) -> None:
        """Also refuses a global scale that is not a positive number."""
        super().check(arrays, shape)
        value = np.asarray(arrays["global_scale"])
        if not (np.isfinite(value) & (value > 0)).all():
            suffix = self.arrays(shape)["global_scale"].suffix
            raise ValueError(f"{self.name}: {suffix!r} is {value.reshape(-1).tolist()}; it must be finite and positive")

    def matrix_decode(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """bf16(fl32(e2m1 * fl32(e4m3 times or divided by the global scale)))."""
        with np.errstate(invalid="ignore"):
            scale = self._scaled(e4m3_decode(arrays["scale"]), arrays["global_scale"])
            return to_bfloat16(e2m1_decode(unpack(arrays["codes"], 4, k)) * np.repeat(scale, GROUP, 1))

    def matrix_decode64(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """e2m1 * e4m3 times the global scale (exact), or divided by it (one float64 rounding)."""
        product = np.asarray(self.operand(arrays, (n, k)), np.float64)
        global_scale = np.asarray(arrays["global_scale"], np.float64)
        return product / global_scale if self.divisor else product * global_scale

    def matrix_encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The published recipe of each serialisation."""
        n, k = values.shape
        amax = np.abs(values).max(initial=0)
        blocks = np.abs(values).reshape(n, -1, GROUP).max(-1)
        if self.divisor:
            total = np.float32(1) if amax == 0 else divided(LARGEST, amax)
            wanted = total * divided(blocks, np.float32(E2M1_MAX))
        else:
            total = np.float32(1) if amax == 0 else divided(amax, LARGEST)
            wanted = divided(blocks, np.float32(E2M1_MAX) * total)
        scale = e4m3_encode(np.clip(wanted, np.float32(2**-9), np.float32(E4M3_MAX)))
        scale = np.where(blocks == 0, np.uint8(ONE), scale)
        total = np.asarray(total, np.float32).reshape(self.fields(n, k)["global_scale"].shape)
        spread = np.repeat(self._scaled(e4m3_decode(scale), total), GROUP, 1)
        codes = e2m1_encode(divided(values, spread) + np.float32(0))  # -0 + 0 is +0
        return {"codes": pack(codes, 4), "scale": scale, "global_scale": total}

    def operand(self, block: Arrays, shape: Shape) -> Array:
        """e2m1 * e4m3."""
        codes = e2m1_decode(unpack(block["codes"], 4, shape[-1]))
        lib = library(codes)
        return codes * lib.repeat(e4m3_decode(block["scale"]), GROUP, axis=-1)

    def epilogue(self, y: Array, arrays: Arrays, shape: Shape) -> Array:
        """The sums divided by the canonical divisor."""
        global_scale = arrays["global_scale"].reshape(())
        return divided(y, global_scale if self.divisor else divided(np.float32(1), global_scale))

    def _scaled(self, scale: np.ndarray, global_scale: np.ndarray) -> np.ndarray:
        return divided(scale, global_scale) if self.divisor else scale * np.float32(global_scale)
