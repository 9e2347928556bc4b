"""The small floating-point formats as integers: E4M3, E2M1 and E8M0 with their tables and encoders, float16, bfloat16.

Encoders round to nearest, ties to the even code, by integer arithmetic on the float32 bits, so that NumPy and JAX agree
and no cast's policy on overflow matters (ml_dtypes turns values above 464 into the NaN of E4M3, torch saturates).

- E4M3 (float8_e4m3fn): s.eeee.mmm, bias 7, no infinity, NaN 0x7F and 0xFF, largest 448 (0x7E), smallest 2^-9.
  Encoding saturates at 448; NaN becomes 0x7F.
- E2M1 (fp4): code 8 is the sign, the low three bits are 0, .5, 1, 1.5, 2, 3, 4, 6. No NaN, no infinity.
  Encoding saturates at 6; NaN becomes 7 with its sign.
- E8M0: byte b is 2^(b-127), 255 is NaN. Byte 0 is 2^-127, a float32 subnormal.
Source: OCP 8-bit Floating Point and Microscaling Formats, v1.0.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from dgpp.formats.arrays import Array, bitcast, library, lookup

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

_E4M3_CODES = np.arange(256, dtype=np.uint8)
E4M3_TABLE: np.ndarray = _E4M3_CODES.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
"""float32 [256]: the value of every E4M3 code."""

E2M1_TABLE: np.ndarray = np.array(
    [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6],
    np.float32,
)
"""float32 [16]: the value of every E2M1 code."""

E8M0_TABLE: np.ndarray = np.append(np.ldexp(np.float64(1), np.arange(-127, 128)), np.nan)
"""float64 [256]: the value of every E8M0 byte."""

E4M3_MAX = 448.0
E2M1_MAX = 6.0


def e4m3_decode(codes: Array) -> Array:
    """The float32 values of E4M3 codes (uint8): exact."""
    return lookup(E4M3_TABLE, codes)


def e2m1_decode(codes: Array) -> Array:
    """The float32 values of E2M1 codes 0 to 15: exact."""
    return lookup(E2M1_TABLE, codes)


def e4m3_encode(x: Array) -> Array:
    """The E4M3 code (uint8) nearest to float32 `x`; beyond 448 saturates, NaN is 0x7F."""
    lib = library(x)
    magnitude = bitcast(x, np.int32) & 0x7FFFFFFF
    code = lib.minimum(_magnitude_code(magnitude, 3, 7), 0x7E) | _sign(x, 0x80)
    return lib.where(magnitude > 0x7F800000, 0x7F, code).astype(np.uint8)


def e2m1_encode(x: Array) -> Array:
    """The E2M1 code (uint8, 0 to 15) nearest to float32 `x`; beyond 6 saturates, NaN is 7 with its sign."""
    lib = library(x)
    code = lib.minimum(_magnitude_code(bitcast(x, np.int32) & 0x7FFFFFFF, 1, 1), 7)
    return (code | _sign(x, 8)).astype(np.uint8)


def e8m0_ceil(x: Array) -> Array:
    """The E8M0 byte (uint8) of the least power of two that is not below positive float32 `x`, within 0 to 254."""
    lib = library(x)
    bits = bitcast(x, np.int32) & 0x7FFFFFFF
    return lib.minimum((bits >> 23) + ((bits & 0x7FFFFF) != 0), 254).astype(np.uint8)


def times_e8m0(values: Array, exponents: Array) -> Array:
    """`values * 2^(b - 127)` for E8M0 bytes `exponents` of the same shape, float32; byte 255 gives NaN.

    In two factors, each a normal number, so that byte 0 does not vanish before the product; exact unless the result
    leaves the range of float32.
    """
    lib = library(values, exponents)
    power = exponents.astype(np.int32) - 127
    half = power >> 1
    with np.errstate(over="ignore"):
        product = (values * _power_of_two(half)) * _power_of_two(power - half)
    return lib.where(exponents == 255, np.float32(np.nan), product)


def to_float16(x: Array) -> Array:
    """float32 `x` rounded once to float16, as float32 values; float16 subnormals are kept, above 65519 is infinity."""
    return bitcast(float16_bits(x), np.float16).astype(np.float32)


def float16_bits(x: Array) -> Array:
    """The uint16 bits of float32 `x` rounded once to float16."""
    lib = library(x)
    magnitude = bitcast(x, np.int32) & 0x7FFFFFFF
    code = lib.minimum(_magnitude_code(magnitude, 10, 15), 0x7C00)
    return (lib.where(magnitude > 0x7F800000, 0x7E00, code) | _sign(x, 0x8000)).astype(np.uint16)


def to_bfloat16(x: Array) -> Array:
    """float32 `x` rounded once to bfloat16, as float32 values."""
    return bitcast(bfloat16_bits(x).astype(np.uint32) << 16, np.float32)


def bfloat16_bits(x: Array) -> Array:
    """The uint16 bits of float32 `x` rounded once to bfloat16; NaN stays NaN."""
    lib = library(x)
    bits = bitcast(x, np.uint32)
    half = lib.asarray(0x7FFF, np.uint32) + ((bits >> 16) & 1)
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return lib.where(nan, (bits >> 16) | 0x40, (bits + half) >> 16).astype(np.uint16)


def _sign(x: Array, bit: int) -> Array:
    """`bit` where the sign bit of float32 `x` is set, else 0."""
    return library(x).where(bitcast(x, np.int32) < 0, np.int32(bit), np.int32(0))


def _power_of_two(power: Array) -> Array:
    return bitcast((power + 127) << 23, np.float32)


def _magnitude_code(magnitude: Array, mantissa: int, bias: int) -> Array:
    """The unsigned code (exponent and `mantissa` bits) nearest to float32 bits without their sign, int32.

    Below the smallest normal exponent the code counts units of 2^(1 - bias - mantissa). No upper limit is applied.
    """
    lib = library(magnitude)
    magnitude = lib.minimum(magnitude, 0x7F800000)
    drop = 23 - mantissa
    even = (magnitude >> drop) & 1
    normal = ((magnitude + ((1 << (drop - 1)) - 1) + even) >> drop) - ((127 - bias) << mantissa)
    exponent = magnitude >> 23
    shift = lib.clip(151 - bias - mantissa - exponent, 1, 25)
    whole = (magnitude & 0x7FFFFF) | 0x800000
    even = (whole >> shift) & 1
    subnormal = (whole + ((lib.asarray(1, np.int32) << (shift - 1)) - 1) + even) >> shift
    return lib.where(exponent >= 128 - bias, normal, subnormal)
