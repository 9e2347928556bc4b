from __future__ import annotations

import numpy as np
import pytest

from dgpp.formats import format_named
from dgpp.formats.minifloat import BFLOAT16, E2M1_TABLE, E4M3_TABLE, E8M0_TABLE
from dgpp.formats.mxfp4 import MXFP4, NAMES
from dgpp.formats.mxfp8 import MXFP8
from tests.formats.vectors import data


def test_F_6_vector() -> None:
    codes = np.tile(np.tile(data("21 F7 80 5A"), 4), (4, 1))
    values = MXFP4().decode({"codes": codes, "scale": data("7F 7C FF 00")[:, None]}, (4, 32))[:, :8]
    assert values[0].tolist() == [0.5, 1, 6, -6, 0, 0, -1, 3]
    assert np.signbit(values[0]).tolist() == [False, False, False, True, False, True, True, False]
    assert values[1].tolist() == [0.0625, 0.125, 0.75, -0.75, 0, 0, -0.125, 0.375]
    assert np.isnan(values[2]).all()
    assert (values[3] == values[0].astype(np.float64) * 2.0**-127).all()
    assert values[3, 0] == pytest.approx(2.938736e-39, rel=1e-6)  # a float32 subnormal


def test_F_7_vector() -> None:
    arrays = {"codes": np.tile(data("38 C0 7E 01"), 8)[None], "scale": data("79")[None]}
    values = MXFP8().decode(arrays, (1, 32))[0, :4]
    assert values.tolist() == [0.015625, -0.03125, 7, 2.0**-15]
    assert values[3] == pytest.approx(3.0517578e-5)


def test_every_code_under_every_scale() -> None:
    scale = np.arange(256, dtype=np.uint8)
    four = {"codes": np.tile(data("10 32 54 76 98 BA DC FE"), (256, 2)), "scale": scale[:, None]}
    exact = E2M1_TABLE.astype(np.float64)[None, :] * E8M0_TABLE[:, None]
    values = MXFP4().decode64(four, (256, 32))
    assert np.array_equal(values, np.tile(exact, 2), equal_nan=True)
    with np.errstate(over="ignore"):
        assert np.array_equal(MXFP4().decode(four, (256, 32)), values.astype(np.float32), equal_nan=True)
    numbers = values[:253]
    assert (numbers.astype(BFLOAT16).astype(np.float64) == numbers).all()
    eight = {"codes": np.tile(np.arange(256, dtype=np.uint8), (256, 1)), "scale": np.repeat(scale[:, None], 8, 1)}
    exact = E4M3_TABLE.astype(np.float64)[None, :] * E8M0_TABLE[:, None]
    assert np.array_equal(MXFP8().decode64(eight, (256, 256)), exact, equal_nan=True)


@pytest.mark.parametrize("layout", NAMES)
def test_F_6_the_four_layouts_hold_the_same_weights(layout: str) -> None:
    format = MXFP4(layout)
    values = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    arrays = format.encode(values)
    format.check(arrays, (3, 64))
    assert (format.decode(arrays, (3, 64)) == MXFP4().decode(MXFP4().encode(values), (3, 64))).all()
    names = {packed.tensor("m"): packed.tag for packed in format.arrays((3, 64)).values()}
    assert (
        names
        == {
            "": {"m.weight": "U8", "m.weight_scale": "U8"},
            "deepseek": {"m.weight": "I8", "m.scale": "F8_E8M0"},
            "packed": {"m.weight_packed": "U8", "m.weight_scale": "U8"},
            "blocks": {"m_blocks": "U8", "m_scales": "U8"},
        }[layout]
    )


def test_F_6_gpt_oss_stores_all_experts_in_one_tensor() -> None:
    format = format_named("mxfp4_blocks")
    assert format.arrays((4, 10, 96))["codes"].shape == (4, 10, 3, 16)
    values = np.random.default_rng(0).standard_normal((4, 10, 96)).astype(np.float32)
    arrays = format.encode(values)
    decoded = format.decode(arrays, values.shape)
    assert decoded.shape == values.shape
    two = format.slice(arrays, values.shape, 0, 1, 3)  # experts
    assert (format.decode(two, (2, 10, 96)) == decoded[1:3]).all()
    columns = format.slice(arrays, values.shape, 2, 32, 96)
    assert (format.decode(columns, (4, 10, 64)) == decoded[..., 32:]).all()


def test_encoders_never_saturate_and_keep_zero_blocks() -> None:
    rng = np.random.default_rng(0)
    values = (rng.standard_normal((64, 32)) * np.exp2(rng.integers(-60, 60, (64, 1)))).astype(np.float32)
    values[0] = 0
    four, eight = MXFP4().encode(values), MXFP8().encode(values)
    amax = np.abs(values).max(1)
    assert four["scale"][0, 0] == eight["scale"][0, 0] == 0
    assert (6 * E8M0_TABLE[four["scale"][:, 0]] >= amax).all()
    assert (3 * E8M0_TABLE[four["scale"][1:, 0]] < amax[1:]).all()
    assert (448 * E8M0_TABLE[eight["scale"][:, 0]] >= amax).all()
    assert (np.abs(MXFP4().decode(four, values.shape) - values) <= amax[:, None] / 3).all()
    assert (np.abs(MXFP8().decode(eight, values.shape) - values) <= amax[:, None] / 14).all()
    assert (MXFP4().decode(four, values.shape)[0] == 0).all()


@pytest.mark.parametrize("format", [MXFP4(), MXFP8()])
def test_cuts_and_shapes_off_the_groups_are_refused_by_name(format: MXFP4 | MXFP8) -> None:
    arrays = format.encode(np.ones((3, 64), np.float32))
    with pytest.raises(ValueError, match=f"{format.name}: cannot be cut at 16 along K; cuts are multiples of 32"):
        format.slice(arrays, (3, 64), 1, 16, 64)
    with pytest.raises(ValueError, match=f"{format.name}: K = 48 is not a multiple of 32"):
        format.arrays((3, 48))
