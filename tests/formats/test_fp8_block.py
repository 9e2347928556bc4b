from __future__ import annotations

import numpy as np
import pytest

from dgpp.formats import format_named
from dgpp.formats.fp8_block import FP8Block
from dgpp.formats.minifloat import BFLOAT16, E4M3_TABLE, E8M0_TABLE, to_bfloat16
from tests.formats.vectors import bf16_hex, data, f32


def test_F_2_vector() -> None:
    arrays = {"codes": data("38 B8 7E 01 08 3C C5 80")[None], "scale": np.array([[f32(0x3C4985F0)]])}
    values = FP8Block().decode(arrays, (1, 8))
    assert bf16_hex(values) == "3C4A BC4A 40B0 37CA 394A 3C97 BD24 8000"
    scale_first = to_bfloat16(E4M3_TABLE[arrays["codes"]] * to_bfloat16(arrays["scale"]))
    assert bf16_hex(scale_first[0, [2, 5]]) == "40B1 3C98"  # the order that is not ours


def test_F_2_1_vector_and_exactness() -> None:
    """448 * 2^-6 = 7; and code * 2^(b - 127) is exact for all codes and all bytes of the range."""
    format = format_named("fp8_block32_e8m0")
    arrays = {"codes": np.full((1, 1), 0x7E, np.uint8), "scale": np.full((1, 1), 0x79, np.uint8)}
    assert format.decode(arrays, (1, 1)) == 7
    every = {
        "codes": np.tile(np.arange(256, dtype=np.uint8), (256, 1)),
        "scale": np.repeat(np.arange(256, dtype=np.uint8)[:, None], 8, 1),
    }
    rows = format_named("fp8_group32_e8m0")
    exact = E4M3_TABLE.astype(np.float64)[None, :] * E8M0_TABLE[:, None]
    assert np.array_equal(rows.decode64(every, (256, 256)), exact, equal_nan=True)
    with np.errstate(over="ignore"):
        assert np.array_equal(rows.decode(every, (256, 256)), exact.astype(np.float32), equal_nan=True)
    inside = rows.decode(every, (256, 256))[3:247]
    numbers = ~np.isnan(inside)
    assert (inside.astype(BFLOAT16).astype(np.float32) == inside)[numbers].all()


def test_every_code_under_float32_and_bfloat16_scales() -> None:
    codes = np.tile(np.arange(256, dtype=np.uint8), (4, 1))
    scale = np.array([[0.0123, 1e-3], [1, 0.5], [3e4, 1e-30], [np.nan, 7]], np.float32)
    for tag, dtype in (("fp8_block1x128", np.float32), ("fp8_block1x128_bf16", BFLOAT16)):
        format = FP8Block(1, 128, "F32" if dtype is np.float32 else "BF16")
        assert format.name == tag.replace("block1x", "group")
        stored = scale.astype(dtype)
        values = format.decode({"codes": codes, "scale": stored}, (4, 256))
        product = E4M3_TABLE[codes] * np.repeat(stored.astype(np.float32), 128, 1)
        expected = product.astype(BFLOAT16).astype(np.float32)
        assert np.array_equal(values, expected, equal_nan=True)
        assert np.isnan(values[3, :128]).all()  # a NaN scale
        assert np.isnan(values[0, [0x7F, 0xFF]]).all()  # NaN codes
        exact = format.decode64({"codes": codes, "scale": stored}, (4, 256))
        assert np.array_equal(exact, E4M3_TABLE[codes].astype(np.float64) * np.repeat(stored, 128, 1), equal_nan=True)


def test_the_encoder_scales_blocks_to_448_and_keeps_zero_blocks() -> None:
    values = np.zeros((130, 200), np.float32)  # the last block of each axis is a part of one
    values[:128, 128:] = np.random.default_rng(0).standard_normal((128, 72))
    values[129, 3] = -5
    arrays = FP8Block().encode(values)
    assert arrays["scale"].shape == (2, 2)
    assert arrays["scale"][0, 0] == 1
    assert arrays["scale"][0, 1] == np.float32(np.abs(values[:128, 128:]).max() / np.float32(448))
    assert np.abs(E4M3_TABLE[arrays["codes"]]).max() == 448
    error = np.abs(FP8Block().decode64(arrays, values.shape) - values)
    assert (error <= np.abs(values) * 2**-4 + arrays["scale"].max() * 2.0**-10).all()
    assert FP8Block().decode(arrays, values.shape)[129, 3] == pytest.approx(-5, rel=0.01)


def test_F_0_5_reblocking_is_bit_identical() -> None:
    """Experts of width 640 cut in four: 160 is no multiple of 128, so blocks are refined to 32."""
    format, shape = FP8Block(), (640, 640)
    arrays = format.encode(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    whole = format.decode(arrays, shape)
    for axis, tag in ((0, "fp8_block32x128"), (1, "fp8_block128x32")):
        bounds = (0, 160, 160, 320, 320, 480, 480, 640)
        finer = format.cut(shape, axis, bounds)
        assert finer.name == tag
        assert format_named(tag) == finer
        recut = format.recut(arrays, shape, axis, bounds)
        finer.check(recut, shape)
        assert (finer.decode(recut, shape) == whole).all()
        part = finer.slice(recut, shape, axis, 160, 320)
        local = (160, 640) if axis == 0 else (640, 160)
        assert (finer.decode(part, local) == np.take(whole, range(160, 320), axis)).all()
    assert format.cut(shape, 0, (0, 320, 640)).name == "fp8_block64x128"


def test_cuts_that_leave_too_narrow_blocks_are_refused() -> None:
    format, shape = FP8Block(), (640, 640)
    with pytest.raises(ValueError, match=r"fp8_block128: cannot be cut at \[0, 8, 640\] along K; .* multiples of 16"):
        format.cut(shape, 1, (0, 8, 640))
    assert format.cut(shape, 0, (0, 8, 640)).name == "fp8_block8x128"
    with pytest.raises(ValueError, match="fp8_block128: cannot be cut at 160 along K; cuts are multiples of 128"):
        format.slice(format.encode(np.ones(shape, np.float32)), shape, 1, 0, 160)


def test_a_ragged_block_at_the_end_is_padded_and_sliced() -> None:
    format, shape = FP8Block(), (3, 160)
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    arrays = format.encode(values)
    padded = format.pad(arrays, shape, 1, 300)
    format.check(padded, (3, 300))
    decoded = format.decode(padded, (3, 300))
    assert (decoded[:, :160] == format.decode(arrays, shape)).all()
    assert (decoded[:, 160:] == 0).all()
    tail = format.slice(arrays, shape, 1, 128, 160)
    assert (format.decode(tail, (3, 32)) == format.decode(arrays, shape)[:, 128:]).all()


def test_scales_of_another_dtype_or_grid_are_refused() -> None:
    arrays = FP8Block().encode(np.ones((256, 256), np.float32))
    with pytest.raises(
        ValueError, match=r"fp8_block128: 'weight_scale_inv' is bfloat16 \[2, 2\], not float32 \[2, 2\]"
    ):
        FP8Block().check({**arrays, "scale": arrays["scale"].astype(BFLOAT16)}, (256, 256))
    with pytest.raises(ValueError, match=r"'weight_scale_inv' is float32 \[2, 2\], not float32 \[3, 2\]"):
        FP8Block().check({**arrays, "codes": np.zeros((384, 256), np.uint8)}, (384, 256))
    with pytest.raises(ValueError, match="fp8_block128: the array 'weight_scale_inv' is missing"):
        FP8Block().check({"codes": arrays["codes"]}, (256, 256))
