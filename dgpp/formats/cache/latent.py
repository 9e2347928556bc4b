"""Latent rows of MLA attention (GLM): FP8 or FP4 values, then a rotary key that is never quantised.

Planes: `row` U8, `scale` F32, one per row; the scale does not see the rotary tail.
- "latent_fp8": `dim - tail` E4M3 codes, as in `kv_fp8`; 512 + 4 bytes at 512 values.
- "latent_fp4": nibbles of E2M1, low first, then one E4M3 scale per 16, padded to 16 bytes; 288 + 4 bytes at 512.
  Row scale s = fl32(amax * fl32(1/2688)); block code = e4m3(fl32(block amax * fl32(448 / amax)));
  S = fl32(block * s); code = e2m1(fl32(x * fl32(1 / S))), 0 if S = 0; value = bf16(fl32(e2m1 * S)).
The tail follows as bf16 bytes: 64 values in GLM-5.3 (640 and 416 bytes), none in GLM-5.3-Flash.
Rows are the same on every rank of a world.
Source: AhmmedSamier/dgpp src/kernels/latent_format.hpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dgpp.formats.arrays import Array, library
from dgpp.formats.bitstream import unpack
from dgpp.formats.cache.base import Plane
from dgpp.formats.cache.recipes import beside, blocks, encode_e4m3_row, from_bytes, inverse, to_bytes
from dgpp.formats.minifloat import E4M3_MAX, e2m1_decode, e2m1_encode, e4m3_decode, e4m3_encode, to_bfloat16

GROUP = 16
INVERSE_2688 = np.float32(1 / 2688)


@dataclass(frozen=True)
class LatentFP8:
    """FP8 latent rows with `tail` rotary values at the end."""

    tail: int = 0
    name: str = "latent_fp8"

    def planes(self, dim: int) -> dict[str, Plane]:
        """`row` and `scale`."""
        return {"row": Plane(np.dtype(np.uint8), (dim + self.tail,)), "scale": Plane(np.dtype(np.float32))}

    def encode(self, rows: Array) -> dict[str, Array]:
        """Codes of the latent, bytes of the tail."""
        latent = rows.shape[-1] - self.tail
        codes, scale = encode_e4m3_row(rows[..., :latent].astype(np.float32))
        return {"row": beside(codes, to_bytes(rows[..., latent:])), "scale": scale}

    def decode(self, planes: Mapping[str, Array], dim: int) -> Array:
        """bf16(fl32(code * scale)), then the tail."""
        latent = dim - self.tail
        row = planes["row"]
        values = to_bfloat16(e4m3_decode(row[..., :latent]) * planes["scale"][..., None])
        return beside(values, from_bytes(row[..., latent:]))


@dataclass(frozen=True)
class LatentFP4:
    """FP4 latent rows with `tail` rotary values at the end."""

    tail: int = 0
    name: str = "latent_fp4"

    def planes(self, dim: int) -> dict[str, Plane]:
        """`row` and `scale`. The latent must be a multiple of 16 wide."""
        latent = dim - self.tail
        if latent % GROUP:
            raise ValueError(f"{self.name}: a latent of {latent} values is not a multiple of {GROUP}")
        width = self._padded(latent) + 2 * self.tail
        return {"row": Plane(np.dtype(np.uint8), (width,)), "scale": Plane(np.dtype(np.float32))}

    def encode(self, rows: Array) -> dict[str, Array]:
        """Nibbles, block scales and padding of the latent, bytes of the tail."""
        lib = library(rows)
        latent = rows.shape[-1] - self.tail
        x = blocks(rows[..., :latent], GROUP)
        block_amax = lib.abs(x).max(-1)
        amax = block_amax.max(-1)
        scale = amax * INVERSE_2688
        block = e4m3_encode(block_amax * inverse(E4M3_MAX, amax)[..., None])
        s = e4m3_decode(block) * scale[..., None]
        codes = lib.where((s == 0)[..., None], 0, e2m1_encode(x * inverse(1.0, s)[..., None])).astype(np.uint8)
        codes = codes.reshape(*rows.shape[:-1], -1, 2)
        nibbles = codes[..., 0] | (codes[..., 1] << 4)
        unused = self._padded(latent) - latent // 2 - latent // GROUP
        padding = lib.zeros((*rows.shape[:-1], unused), np.uint8)
        return {"row": beside(nibbles, block, padding, to_bytes(rows[..., latent:])), "scale": scale}

    def decode(self, planes: Mapping[str, Array], dim: int) -> Array:
        """bf16(fl32(e2m1 * S)), then the tail."""
        latent = dim - self.tail
        row = planes["row"]
        block = row[..., latent // 2 : latent // 2 + latent // GROUP]
        s = e4m3_decode(block) * planes["scale"][..., None]
        codes = e2m1_decode(unpack(row[..., : latent // 2], 4, latent)).reshape(*s.shape, GROUP)
        values = to_bfloat16(codes * s[..., None]).reshape(*row.shape[:-1], latent)
        return beside(values, from_bytes(row[..., self._padded(latent) :]))

    @staticmethod
    def _padded(latent: int) -> int:
        return -(-(latent // 2 + latent // GROUP) // 16) * 16
