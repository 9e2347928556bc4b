"""Cache rows of DeepSeek: FP8 with block exponents, and FP4 with E4M3 block scales. One plane `row` U8 each.

- "fp8_block" (V4.1 window): E4M3 codes, then one E8M0 byte per 32; 528 bytes at 512 values. The byte is the least power
  of two not below fl32(max(amax, 1e-4) * fl32(1/448)); value = bf16(code * 2^(b-127)), exact.
- "fp8_block_rope" (V4 window): E4M3 codes of all but the last 64 values, those 64 as bf16 bytes, one E8M0 byte per 64
  codes, zeros up to a multiple of 8; 584 bytes at 512 values.
- "fp4_block" (V4.1 compressed): nibbles of E2M1, low first, then one E4M3 scale per 16: S = e4m3(fl32(max(amax,
  6 * 2^-9) / 6)); code = e2m1(fl32(x / S)); value = bf16(e2m1 * S), exact; 288 bytes at 512 values.
Source: kaushikvira/dgpp src/kernels/latent_format.hpp; AhmmedSamier/dgpp src/kernels/csa2.hpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dgpp.formats.arrays import Array, divided, library
from dgpp.formats.bitstream import unpack
from dgpp.formats.cache.base import Plane
from dgpp.formats.cache.recipes import beside, blocks, encode_e4m3_blocks, from_bytes, to_bytes
from dgpp.formats.minifloat import (
    E2M1_MAX,
    e2m1_decode,
    e2m1_encode,
    e4m3_decode,
    e4m3_encode,
    times_e8m0,
    to_bfloat16,
)

LEAST_AMAX = np.float32(6 * 2.0**-9)


@dataclass(frozen=True)
class FP8Block:
    """E4M3 codes with a power of two per `group`, and `tail` bf16 values at the end that are not quantised."""

    group: int = 32
    tail: int = 0

    @property
    def name(self) -> str:
        """ "fp8_block", or "fp8_block_rope" with a tail."""
        return "fp8_block_rope" if self.tail else "fp8_block"

    def planes(self, dim: int) -> dict[str, Plane]:
        """`row`. The quantised part must be whole groups."""
        return {"row": Plane(np.dtype(np.uint8), (sum(self._parts(dim)),))}

    def encode(self, rows: Array) -> dict[str, Array]:
        """Codes, tail, exponents, padding."""
        lib = library(rows)
        quantised, _, _, padding = self._parts(rows.shape[-1])
        codes, exponent = encode_e4m3_blocks(blocks(rows[..., :quantised], self.group))
        lead = rows.shape[:-1]
        row = (
            codes.reshape(*lead, quantised),
            to_bytes(rows[..., quantised:]),
            exponent,
            lib.zeros((*lead, padding), np.uint8),
        )
        return {"row": beside(*row)}

    def decode(self, planes: Mapping[str, Array], dim: int) -> Array:
        """bf16(code * 2^(b-127)), then the tail."""
        lib = library(planes["row"])
        quantised, tail, groups, _ = self._parts(dim)
        row = planes["row"]
        exponent = lib.repeat(row[..., quantised + tail : quantised + tail + groups], self.group, axis=-1)
        values = to_bfloat16(times_e8m0(e4m3_decode(row[..., :quantised]), exponent))
        return beside(values, from_bytes(row[..., quantised : quantised + tail]))

    def _parts(self, dim: int) -> tuple[int, int, int, int]:
        """Bytes of codes, tail, exponents and padding."""
        quantised = dim - self.tail
        if quantised % self.group:
            raise ValueError(f"{self.name}: {quantised} quantised values are not a multiple of {self.group}")
        groups = quantised // self.group
        return quantised, 2 * self.tail, groups, -groups % 8


@dataclass(frozen=True)
class FP4Block:
    """E2M1 codes with an E4M3 scale per 16."""

    name: str = "fp4_block"
    group = 16

    def planes(self, dim: int) -> dict[str, Plane]:
        """`row`. Rows must be whole groups."""
        if dim % self.group:
            raise ValueError(f"{self.name}: {dim} values are not a multiple of {self.group}")
        return {"row": Plane(np.dtype(np.uint8), (dim // 2 + dim // self.group,))}

    def encode(self, rows: Array) -> dict[str, Array]:
        """Nibbles, then scales."""
        lib = library(rows)
        x = blocks(rows, self.group)
        amax = lib.maximum(lib.abs(x).max(-1), LEAST_AMAX)
        scale = e4m3_encode(divided(amax, np.float32(E2M1_MAX)))
        codes = e2m1_encode(divided(x, e4m3_decode(scale)[..., None])).reshape(*rows.shape[:-1], -1, 2)
        return {"row": beside(codes[..., 0] | (codes[..., 1] << 4), scale)}

    def decode(self, planes: Mapping[str, Array], dim: int) -> Array:
        """bf16(e2m1 * S)."""
        row = planes["row"]
        scale = e4m3_decode(row[..., dim // 2 :])
        codes = e2m1_decode(unpack(row[..., : dim // 2], 4, dim)).reshape(*scale.shape, self.group)
        return to_bfloat16(codes * scale[..., None]).reshape(*row.shape[:-1], dim)
