"""The steps that several cache formats share: scaled E4M3 rows, block exponents, bytes side by side."""

from __future__ import annotations

import numpy as np

from dgpp.formats.arrays import Array, as_bytes, bitcast, divided, library
from dgpp.formats.minifloat import E4M3_MAX, bfloat16_bits, e4m3_encode, e8m0_ceil, times_e8m0

INVERSE_448 = np.float32(1 / 448)


def blocks(x: Array, size: int) -> Array:
    """float32 [..., dim / size, size] of rows [..., dim]."""
    return x.astype(np.float32).reshape(*x.shape[:-1], -1, size)


def inverse(numerator: float, amax: Array) -> Array:
    """fl32(numerator / amax), 0 where amax is 0."""
    lib = library(amax)
    zero = amax == 0
    quotient = divided(lib.full_like(amax, numerator), lib.where(zero, np.float32(1), amax))
    return lib.where(zero, np.float32(0), quotient)


def encode_e4m3_row(x: Array) -> tuple[Array, Array]:
    """(codes uint8 [..., dim], scale float32 [...]) of float32 rows: scale = fl32(amax * fl32(1/448)),
    code = e4m3(fl32(x * fl32(448 / amax))). A zero row has scale 0 and codes 0."""
    amax = library(x).abs(x).max(-1)
    return e4m3_encode(x * inverse(E4M3_MAX, amax)[..., None]), amax * INVERSE_448


def encode_e4m3_blocks(x: Array) -> tuple[Array, Array]:
    """(codes uint8 [..., G, size], E8M0 bytes uint8 [..., G]) of float32 blocks [..., G, size]: the byte is the least
    power of two that is not below fl32(max(amax, 1e-4) * fl32(1/448))."""
    lib = library(x)
    amax = lib.maximum(lib.abs(x).max(-1), np.float32(1e-4))
    exponent = e8m0_ceil(amax * INVERSE_448)
    inverse_power = (254 - exponent.astype(np.int32)).astype(np.uint8)  # exact: bytes are far from both ends
    return e4m3_encode(times_e8m0(x, lib.broadcast_to(inverse_power[..., None], x.shape))), exponent


def to_bytes(x: Array) -> Array:
    """The bytes of bfloat16 rows [..., D]: uint8 [..., 2 D]."""
    return as_bytes(bfloat16_bits(x.astype(np.float32)))


def from_bytes(data: Array) -> Array:
    """The values float32 [..., D] of the bytes of bfloat16 rows."""
    pairs = data.reshape(*data.shape[:-1], -1, 2).astype(np.uint32)
    return bitcast((pairs[..., 0] | (pairs[..., 1] << 8)) << 16, np.float32)


def beside(*parts: Array) -> Array:
    """The parts one after the other along the last axis."""
    return library(*parts).concatenate(parts, -1)
