from __future__ import annotations

import numpy as np

from dgpp.formats.fp8_channel import FP8Channel
from dgpp.formats.fp8_tensor import FP8Tensor
from dgpp.formats.minifloat import BFLOAT16, E4M3_TABLE


def test_F_2_2_one_scale_per_row() -> None:
    codes = np.tile(np.arange(256, dtype=np.uint8), (5, 1))
    scale = np.array([1, 0.0123, -2, np.nan, 0], BFLOAT16)[:, None]
    values = FP8Channel().decode({"codes": codes, "scale": scale}, (5, 256))
    with np.errstate(invalid="ignore"):
        expected = (E4M3_TABLE[codes] * scale.astype(np.float32)).astype(BFLOAT16).astype(np.float32)
    assert np.array_equal(values, expected, equal_nan=True)
    assert np.isnan(values[3]).all()


def test_F_2_2_column_slices_keep_all_scales() -> None:
    format, shape = FP8Channel(), (5, 24)
    arrays = format.encode(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    part = format.slice(arrays, shape, 1, 3, 10)
    assert (part["scale"] == arrays["scale"]).all()
    assert (format.decode(part, (5, 7)) == format.decode(arrays, shape)[:, 3:10]).all()
    rows = format.slice(arrays, shape, 0, 1, 3)
    assert rows["scale"].shape == (2, 1)


def test_F_2_3_one_scale_per_tensor() -> None:
    """Rows of an n-gram table: bf16(e4m3) * bf16 scale, one rounding to bf16."""
    codes = np.arange(256, dtype=np.uint8).reshape(2, 128)
    scale = np.array([0.0123], BFLOAT16)
    values = FP8Tensor().decode({"codes": codes, "scale": scale}, codes.shape)
    exact = E4M3_TABLE[codes].astype(np.float64) * scale.astype(np.float64)
    assert np.array_equal(values, exact.astype(BFLOAT16).astype(np.float32), equal_nan=True)
    assert np.array_equal(FP8Tensor().decode64({"codes": codes, "scale": scale}, codes.shape), exact, equal_nan=True)


def test_zero_rows_and_tensors_have_scale_1() -> None:
    zero = np.zeros((2, 8), np.float32)
    for format in (FP8Channel(), FP8Channel("F32"), FP8Tensor(), FP8Tensor("F32")):
        arrays = format.encode(zero)
        assert (arrays["scale"].astype(np.float32) == 1).all()
        assert (format.decode(arrays, zero.shape) == 0).all()
    assert FP8Tensor("F32").arrays((2, 8))["input_scale"].optional
