"""Element codes (formats section 1): tables, encoders, and their policies on overflow, NaN and signed zero."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest

from dgpp.formats.minifloat import (
    BFLOAT16,
    E2M1_TABLE,
    E4M3_TABLE,
    E8M0_TABLE,
    bfloat16_bits,
    e2m1_encode,
    e4m3_encode,
    e8m0_ceil,
    float16_bits,
    times_e8m0,
    to_float16,
)


def awkward() -> np.ndarray:
    """Float32 values where encoders go wrong: random bits, every midpoint and its neighbours, the limits, NaN."""
    rng = np.random.default_rng(0)
    parts = [rng.integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32).view(np.float32)]
    half = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    for grid in (E4M3_TABLE[:0x7F], E2M1_TABLE[:8], half):
        middle = ((grid[1:].astype(np.float64) + grid[:-1]) / 2).astype(np.float32)
        parts += [grid, middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(0))]
    parts.append(np.array([0, 448, 464, 464.1, 480, 1e9, np.inf, 65519, 65520, 6, 6.1, np.nan], np.float32))
    x = np.concatenate(parts)
    return np.concatenate([x, -x])


def test_F_1_1_e4m3_decodes() -> None:
    vectors = {
        0x00: 0,
        0x01: 0.001953125,
        0x08: 0.015625,
        0x38: 1,
        0x3C: 1.5,
        0x7E: 448,
        0x80: 0,
        0xB8: -1,
        0xC5: -3.25,
    }
    for code, value in vectors.items():
        assert E4M3_TABLE[code] == value
    assert np.signbit(E4M3_TABLE[0x80])
    assert np.flatnonzero(np.isnan(E4M3_TABLE)).tolist() == [0x7F, 0xFF]
    assert np.isfinite(np.delete(E4M3_TABLE, [0x7F, 0xFF])).all()


def test_F_0_3_e4m3_saturates_where_ml_dtypes_gives_nan() -> None:
    x = np.array([448, 464, 464.1, 480, 1e9, np.inf, -np.inf, np.nan, -0.0], np.float32)
    assert e4m3_encode(x).tolist() == [0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0x7F, 0x80]
    assert x[2:6].astype(ml_dtypes.float8_e4m3fn).view(np.uint8).tolist() == [0x7F] * 4


def test_F_1_1_e4m3_encodes_like_a_clipped_cast() -> None:
    x = awkward()
    with np.errstate(invalid="ignore"):
        cast = np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert (e4m3_encode(x) == np.where(np.isnan(x), 0x7F, cast)).all()
    numbers = ~np.isnan(E4M3_TABLE)
    assert (e4m3_encode(E4M3_TABLE)[numbers] == np.arange(256)[numbers]).all()


def test_F_1_2_e2m1_thresholds_and_signs() -> None:
    edges = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], np.float32)
    above = np.nextafter(edges, np.float32(9))
    assert e2m1_encode(edges).tolist() == [0, 2, 2, 4, 4, 6, 6]  # ties go to the even code
    assert e2m1_encode(above).tolist() == [1, 2, 3, 4, 5, 6, 7]
    special = np.array([-0.0, np.nan, -np.inf, 7, -100], np.float32)
    assert e2m1_encode(special).tolist() == [8, 7, 15, 7, 15]
    assert e2m1_encode(-np.array([np.nan], np.float32)).tolist() == [15]
    assert (e2m1_encode(E2M1_TABLE) == np.arange(16)).all()


def test_F_1_2_e2m1_encodes_like_a_clipped_cast() -> None:
    x = np.concatenate([awkward(), np.linspace(-7, 7, 4001, dtype=np.float32)])
    x = x[~np.isnan(x)]
    cast = np.clip(x, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8) & 15
    assert (e2m1_encode(x) == cast).all()


def test_F_1_3_e8m0_bytes() -> None:
    assert np.isnan(E8M0_TABLE[255])
    assert (E8M0_TABLE[:255] == 2.0 ** (np.arange(255.0) - 127)).all()
    assert np.float32(E8M0_TABLE[0]).view(np.uint32) == 0x00400000
    assert np.array(E8M0_TABLE[0]).astype(BFLOAT16).view(np.uint16) == 0x0040
    one = np.ones(256, np.float32)
    times = times_e8m0(one, np.arange(256, dtype=np.uint8))
    assert np.array_equal(times, E8M0_TABLE.astype(np.float32), equal_nan=True)


def test_F_1_3_e8m0_takes_the_next_power_of_two() -> None:
    powers = (2.0 ** np.arange(-126.0, 127)).astype(np.float32)
    assert (e8m0_ceil(powers) == np.arange(1, 254)).all()
    assert (e8m0_ceil(np.nextafter(powers, np.float32(np.inf))) == np.arange(2, 255)).all()
    assert e8m0_ceil(np.array([0, 1e-45, np.inf, np.finfo(np.float32).max], np.float32)).tolist() == [0, 1, 254, 254]


@pytest.mark.parametrize(("bits", "dtype"), [(float16_bits, np.float16), (bfloat16_bits, BFLOAT16)])
def test_rounding_to_16_bits_is_that_of_a_cast(bits: object, dtype: object) -> None:
    x = awkward()
    with np.errstate(over="ignore", invalid="ignore"):
        cast = x.astype(dtype).view(np.uint16)
    assert callable(bits)
    numbers = ~np.isnan(x)
    assert (bits(x) == cast)[numbers].all()
    assert np.isnan(bits(x).view(dtype).astype(np.float32)[~numbers]).all()


def test_jax_gives_the_same_codes() -> None:
    x = awkward()

    @jax.jit
    def codes(x: jax.Array) -> list[jax.Array]:
        return [f(x) for f in (e4m3_encode, e2m1_encode, e8m0_ceil, float16_bits, bfloat16_bits)]

    for mine, f in zip(codes(x), (e4m3_encode, e2m1_encode, e8m0_ceil, float16_bits, bfloat16_bits), strict=True):
        assert (np.asarray(mine) == f(x)).all()
    numbers = ~np.isnan(x)
    assert (np.asarray(jax.jit(to_float16)(x)) == to_float16(x))[numbers].all()


def test_F_15_exactness_of_block_products() -> None:
    """The 16 x 254 products of NVFP4, and the power-of-two ranges of the summary table."""
    product = E2M1_TABLE[:, None] * np.delete(E4M3_TABLE, [0x7F, 0xFF])[None, :]
    assert product.shape == (16, 254)
    assert np.abs(product[product != 0]).min() == 2.0**-10
    assert product.max() == 2688
    for dtype in (BFLOAT16, np.float16):
        assert (product.astype(dtype).astype(np.float32) == product).all()

    def exact_powers(values: np.ndarray, dtype: object) -> tuple[int, int]:
        """The first and the last k for which every value * 2^k is exact in dtype."""
        powers = np.arange(-130, 131)
        values = values[np.isfinite(values)].astype(np.float64)
        with np.errstate(over="ignore"):
            scaled = values[None, :] * 2.0 ** powers[:, None]
            good = powers[(scaled.astype(dtype).astype(np.float64) == scaled).all(1)]
        assert (np.diff(good) == 1).all()
        return int(good[0]), int(good[-1])

    assert exact_powers(E4M3_TABLE, BFLOAT16) == (-124, 119)
    assert exact_powers(E4M3_TABLE, np.float16) == (-15, 7)
    assert exact_powers(E2M1_TABLE, BFLOAT16)[1] == 125
    assert exact_powers(E2M1_TABLE, BFLOAT16)[0] <= -127
    assert exact_powers(E2M1_TABLE, np.float16) == (-23, 13)
