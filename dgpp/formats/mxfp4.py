"""MXFP4: E2M1 codes in groups of 32 along K under a power-of-two scale, in the layouts of four families of releases.

Value: e2m1 * 2^(b - 127), exact in float32 and in bf16; byte 0 gives float32 subnormals, byte 255 NaN. There is no
global scale. Two codes per byte, low nibble first. 0.53125 bytes per weight.

| tag | payload | scale | seen in |
|---|---|---|---|
| "mxfp4" | ".weight" U8 [N, K/2] | ".weight_scale" U8 [N, K/32] | MiMo, modelopt |
| "mxfp4_deepseek" | ".weight" I8 [N, K/2] | ".scale" F8_E8M0 [N, K/32] | DeepSeek V4 and V4.1 experts |
| "mxfp4_packed" | ".weight_packed" U8 [N, K/2] | ".weight_scale" U8 [N, K/32] | compressed-tensors |
| "mxfp4_blocks" | "_blocks" U8 [..., N, K/32, 16] | "_scales" U8 [..., N, K/32] | gpt-oss, all experts in one tensor |

Encoder: b = ceil(log2(amax / 6)) + 127, 0 for a zero block, so nothing saturates; codes to nearest, ties to even.
Slice rule: rows anywhere, columns on 32.
Source: OCP Microscaling Formats v1.0; transformers 5.24 integrations/mxfp4.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dgpp.formats.arrays import Array, bitcast, divided, library
from dgpp.formats.base import Along, Arrays, PackedArray, Shape
from dgpp.formats.bitstream import pack, unpack
from dgpp.formats.matrix import MatrixFormat
from dgpp.formats.minifloat import E2M1_MAX, E8M0_TABLE, e2m1_decode, e2m1_encode, e8m0_ceil, times_e8m0

GROUP = 32
NAMES: dict[str, tuple[str, str, str, str]] = {  # layout: payload suffix and tag, scale suffix and tag
    "": ("weight", "U8", "weight_scale", "U8"),
    "deepseek": ("weight", "I8", "scale", "F8_E8M0"),
    "packed": ("weight_packed", "U8", "weight_scale", "U8"),
    "blocks": ("_blocks", "U8", "_scales", "U8"),
}


@dataclass(frozen=True)
class MXFP4(MatrixFormat):
    """MXFP4 in the `layout` "", "deepseek", "packed" or "blocks"."""

    layout: str = ""

    exact_in = ("bf16",)
    slice_rule = "rows anywhere, columns on 32"

    @property
    def name(self) -> str:
        """ "mxfp4", or "mxfp4_" and the layout."""
        return "mxfp4" + (f"_{self.layout}" if self.layout else "")

    def fields(self, n: int, k: int) -> dict[str, PackedArray]:
        """`codes` and `scale`. K must be a multiple of 32."""
        if k % GROUP:
            raise ValueError(f"{self.name}: K = {k} is not a multiple of {GROUP}")
        payload, tag, scale, scale_tag = NAMES[self.layout]
        u8 = np.dtype(np.uint8)
        dtype: np.dtype[Any] = np.dtype(np.int8) if tag == "I8" else u8
        groups = Along(1, GROUP)
        codes = (
            PackedArray(payload, tag, dtype, (n, k // GROUP, GROUP // 2), (Along(0), groups, None))
            if self.layout == "blocks"
            else PackedArray(payload, tag, dtype, (n, k // 2), (Along(0), Along(1, 2)))
        )
        also = ("U8",) if scale_tag == "F8_E8M0" else ("F8_E8M0",)
        return {
            "codes": codes,
            "scale": PackedArray(scale, scale_tag, u8, (n, k // GROUP), (Along(0), groups), 127, also=also),
        }

    def matrix_decode(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """e2m1 * 2^(b - 127): exact."""
        return np.asarray(self.operand(arrays, (n, k)))

    def matrix_decode64(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """e2m1 * 2^(b - 127): exact."""
        codes = e2m1_decode(self._codes(arrays, k)).astype(np.float64)
        return codes * np.repeat(E8M0_TABLE[arrays["scale"]], GROUP, 1)

    def matrix_encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The least scale under which no element of the group saturates."""
        n, k = values.shape
        amax = np.abs(values).reshape(n, -1, GROUP).max(-1)
        scale = e8m0_ceil(divided(amax, np.float32(E2M1_MAX)))
        factor = np.repeat(E8M0_TABLE[scale], GROUP, 1)
        codes = pack(e2m1_encode((values.astype(np.float64) / factor).astype(np.float32)), 4)
        payload = self.fields(n, k)["codes"]
        return {"codes": codes.view(payload.dtype).reshape(payload.shape), "scale": scale}

    def operand(self, block: Arrays, shape: Shape) -> Array:
        """e2m1 * 2^(b - 127)."""
        codes = e2m1_decode(self._codes(block, shape[-1]))
        lib = library(codes)
        return times_e8m0(codes, lib.repeat(block["scale"], GROUP, axis=-1))

    def _codes(self, block: Arrays, k: int) -> Array:
        data = bitcast(block["codes"], np.uint8)
        return unpack(data.reshape(data.shape[0], -1), 4, k)
