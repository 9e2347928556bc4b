from __future__ import annotations

import numpy as np
import pytest

from dgpp.formats.bitstream import pack
from dgpp.formats.minifloat import BFLOAT16
from dgpp.formats.packed_int import PackedInt
from tests.formats.vectors import bf16, words

INT4, INT8 = PackedInt(4, 64), PackedInt(8, 64)


def test_F_8_1_int4_vector() -> None:
    u = np.full((1, 64), 8)
    u[0, :8] = [0, 8, 15, 7, 9, 1, 8, 3]
    arrays = {"codes": np.full((1, 8), words(0x88888888)), "scale": bf16("3C4A")[None]}
    arrays["codes"][0, 0] = words(0x38197F80)[0]
    values = INT4.decode(arrays, (1, 64))[0]
    expected = [-0.09863281, 0, 0.08630371, -0.012329102, 0.012329102, -0.08630371, 0, -0.061645508]
    assert values[:8] == pytest.approx(expected, rel=1e-7)
    assert (values == (u[0] - 8) * 0.0123291015625).all()
    assert (values[8:] == 0).all()


def test_F_8_1_int8_vector() -> None:
    arrays = {"codes": np.full((1, 16), words(0x80808080)), "scale": bf16("3C4A")[None]}
    arrays["codes"][0, 0] = words(0x81FF8000)[0]
    values = INT8.decode(arrays, (1, 64))[0]
    assert values[:4] == pytest.approx([-1.578125, 0, 1.565795898, 0.012329102], rel=1e-8)
    assert (values[4:] == 0).all()


@pytest.mark.parametrize(("format", "share"), [(INT4, 0.63), (INT8, 0.12)])
def test_F_0_every_code_is_exact_in_float32_and_often_not_in_bfloat16(format: PackedInt, share: float) -> None:
    """All codes under all scales of one binade, and the shares of the summary table."""
    count = 1 << format.bits
    row = np.tile(np.arange(count), max(1, 64 // count))
    scales = (np.arange(128, dtype=np.uint16) + 0x3F80).view(BFLOAT16)
    columns = len(row) // 64
    arrays = {
        "codes": np.tile(pack(row, format.bits, np.int32), (128, 1)),
        "scale": np.repeat(scales[:, None], columns, 1),
    }
    values = format.decode(arrays, (128, len(row)))
    exact = (row - count // 2)[None, :] * scales.astype(np.float64)[:, None]
    assert (values == exact).all()
    assert (format.decode64(arrays, (128, len(row))) == exact).all()
    assert np.mean(exact.astype(BFLOAT16).astype(np.float64) == exact) == pytest.approx(share, abs=0.006)


def test_the_encoder_and_its_scales() -> None:
    values = np.random.default_rng(0).standard_normal((3, 128)).astype(np.float32)
    values[1, :64] = 0
    for format, full in ((INT4, 7.5), (INT8, 127.5)):
        arrays = format.encode(values)
        format.check(arrays, (3, 128))
        amax = np.abs(values).reshape(3, 2, 64).max(-1)
        assert (arrays["scale"] == (amax / np.float32(full)).astype(BFLOAT16)).all()
        decoded = format.decode(arrays, (3, 128))
        assert (decoded[1, :64] == 0).all()
        assert np.abs(decoded - values).max() <= arrays["scale"].astype(np.float32).max() * 0.52


def test_W9_a_short_tail_group_is_kept() -> None:
    """K = 352 in groups of 128: three scales, the last over 96."""
    format, shape = PackedInt(4, 128, "F16"), (5, 352)
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    arrays = format.encode(values)
    assert arrays["scale"].shape == (5, 3)
    assert np.abs(format.decode(arrays, shape) - values).max() < 0.5
    padded = format.pad(arrays, shape, 1, 512)
    assert (format.decode(padded, (5, 512))[:, 352:] == 0).all()
    assert (format.decode(padded, (5, 512))[:, :352] == format.decode(arrays, shape)).all()
    tail = format.slice(arrays, shape, 1, 256, 352)
    assert (format.decode(tail, (5, 96)) == format.decode(arrays, shape)[:, 256:]).all()


def test_wrong_shapes_and_cuts_are_refused_by_name() -> None:
    arrays = INT4.encode(np.ones((3, 128), np.float32))
    wider = {**INT4.encode(np.ones((4, 128), np.float32)), "shape": arrays["shape"]}
    with pytest.raises(ValueError, match=r"int4_g64: weight_shape is \[3, 128\], not \[4, 128\]"):
        INT4.check(wider, (4, 128))
    with pytest.raises(ValueError, match="int4_g64: cannot be cut at 32 along K; cuts are multiples of 64"):
        INT4.slice(arrays, (3, 128), 1, 32, 128)
    with pytest.raises(ValueError, match="int4_g64: K = 100 is not a multiple of 8"):
        INT4.arrays((3, 100))
