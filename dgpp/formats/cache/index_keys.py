"""Keys of the sparse-attention indexer: 128 values in E4M3 under a power of two, exact to decode.

Planes: `codes` U8 [128], `scale` F32, a power of two. 132 bytes per row.
- "index_fp8" (GLM's DSA): the key is first rotated: Hadamard of 128 in float32, times fl32(1 / sqrt(128)), rounded to
  bf16. Scale = the least power of two not below fl32(max(amax, 1e-4) * fl32(1/448)); code = e4m3(x / scale). Queries
  are treated the same.
- "index_fp4" (DeepSeek): E2M1 under a power of two per 32, the least not below fl32(max(amax, 6 * 2^-126) * fl32(1/6)).
  Held as E4M3 of value / S with S = 2^(kmax - 6), kmax the row's largest block exponent: exact while the block
  exponents of a row lie within 14 of it (smaller blocks round to E4M3's grid).
Source: AhmmedSamier/dgpp src/kernels/dsa.cu; kaushikvira/dgpp src/kernels/latent_format.hpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dgpp.formats.arrays import Array, bitcast, library
from dgpp.formats.cache.base import Plane
from dgpp.formats.cache.recipes import INVERSE_448, blocks
from dgpp.formats.hadamard import SCALE_128, butterflies
from dgpp.formats.minifloat import (
    e2m1_decode,
    e2m1_encode,
    e4m3_decode,
    e4m3_encode,
    e8m0_ceil,
    times_e8m0,
    to_bfloat16,
)

DIM = 128
GROUP = 32
FLOOR_FP8 = np.float32(1e-4)
FLOOR_FP4 = np.float32(6 * 2.0**-126)
INVERSE_6 = np.float32(1 / 6)


class _IndexRows:
    name: str

    def planes(self, dim: int) -> dict[str, Plane]:
        """`codes` and `scale`. Keys are 128 wide."""
        if dim != DIM:
            raise ValueError(f"{self.name}: index keys are {DIM} wide, not {dim}")
        return {"codes": Plane(np.dtype(np.uint8), (DIM,)), "scale": Plane(np.dtype(np.float32))}

    def decode(self, planes: Mapping[str, Array], dim: int) -> Array:
        """code * scale: exact."""
        return e4m3_decode(planes["codes"]) * planes["scale"][..., None]


@dataclass(frozen=True)
class IndexFP8(_IndexRows):
    """Rotated index keys of GLM."""

    name: str = "index_fp8"

    def encode(self, rows: Array) -> dict[str, Array]:
        """Rotated, then scaled by a power of two."""
        lib = library(rows)
        x = to_bfloat16(butterflies(rows.astype(np.float32), DIM) * SCALE_128)
        amax = lib.maximum(lib.abs(x).max(-1), FLOOR_FP8)
        exponent = e8m0_ceil(amax * INVERSE_448)
        return {"codes": e4m3_encode(times_e8m0(x, _opposite(exponent, x))), "scale": _power(exponent)}


@dataclass(frozen=True)
class IndexFP4(_IndexRows):
    """Index keys of DeepSeek, after their own rotation."""

    name: str = "index_fp4"

    def encode(self, rows: Array) -> dict[str, Array]:
        """E2M1 per 32, held as E4M3 under one power of two."""
        lib = library(rows)
        x = blocks(rows, GROUP)
        amax = lib.maximum(lib.abs(x).max(-1), FLOOR_FP4)
        exponent = e8m0_ceil(amax * INVERSE_6)
        values = e2m1_decode(e2m1_encode(times_e8m0(x, _opposite(exponent, x))))
        # A block of the smallest exponent stays representable when the row's largest is 6 under the top of E4M3.
        top = lib.maximum(exponent.max(-1).astype(np.int32) - 6, 1)
        shift = (exponent.astype(np.int32) - top[..., None] + 127).astype(np.uint8)
        shift = lib.where(exponent < top[..., None] - 127, np.uint8(0), shift)
        held = times_e8m0(values, lib.broadcast_to(shift[..., None], values.shape))
        return {
            "codes": e4m3_encode(held).reshape(rows.shape),
            "scale": _power(top.astype(np.uint8)),
        }


def _opposite(exponent: Array, like: Array) -> Array:
    """The E8M0 bytes of the reciprocals of powers of two, for every element of `like`."""
    return library(exponent).broadcast_to((254 - exponent.astype(np.int32)).astype(np.uint8)[..., None], like.shape)


def _power(exponent: Array) -> Array:
    """float32 2^(b - 127) of bytes 1 to 254."""
    return bitcast(exponent.astype(np.int32) << 23, np.float32)
