"""FP8 rows of keys or values, one per token and K/V head (MiMo, Qwen).

Planes: `codes` U8 (E4M3) [dim], `scale` F32. scale = fl32(amax * fl32(1/448)); code = e4m3(fl32(x * fl32(448 / amax)));
value = bf16(fl32(code * scale)). A zero row has scale 0 and codes 0. dim + 4 bytes per row.
Source: AhmmedSamier/dgpp src/kernels/latent_format.hpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dgpp.formats.arrays import Array
from dgpp.formats.cache.base import Plane
from dgpp.formats.cache.recipes import encode_e4m3_row
from dgpp.formats.minifloat import e4m3_decode, to_bfloat16


@dataclass(frozen=True)
class KVRows:
    """The FP8 format of K/V heads."""

    name: str = "kv_fp8"

    def planes(self, dim: int) -> dict[str, Plane]:
        """`codes` and `scale`."""
        return {"codes": Plane(np.dtype(np.uint8), (dim,)), "scale": Plane(np.dtype(np.float32))}

    def encode(self, rows: Array) -> dict[str, Array]:
        """Each row scaled to its largest element."""
        codes, scale = encode_e4m3_row(rows.astype(np.float32))
        return {"codes": codes, "scale": scale}

    def decode(self, planes: Mapping[str, Array], dim: int) -> Array:
        """bf16(fl32(code * scale))."""
        return to_bfloat16(e4m3_decode(planes["codes"]) * planes["scale"][..., None])
