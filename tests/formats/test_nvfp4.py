from __future__ import annotations

import numpy as np
import pytest

from dgpp.formats import reference
from dgpp.formats.minifloat import BFLOAT16, E2M1_TABLE, E4M3_TABLE
from dgpp.formats.nvfp4 import NVFP4
from tests.formats.vectors import bf16_hex, data, f32, hexes

BYTES = "21 F7 80 5A 00 93 6C D4"
VALUES = "39E8 3A68 3BAE BBAE 0000 8000 BA68 3B2E 0000 0000 3AAE B9E8 BAE8 3B68 3AE8 BB2E"
MULTIPLIER, DIVISOR = NVFP4(), NVFP4(divisor=True)


def one_block(global_scale: np.ndarray) -> dict[str, np.ndarray]:
    return {"codes": data(BYTES)[None], "scale": data("45")[None], "global_scale": global_scale}


def test_F_3_vector() -> None:
    arrays = one_block(np.array(f32(0x398E946E)))
    products = [1.625, 3.25, 19.5, -19.5, 0, 0, -3.25, 9.75, 0, 0, 4.875, -1.625, -6.5, 13, 6.5, -9.75]
    operand = MULTIPLIER.operand(arrays, (1, 16))
    assert operand.tolist() == [products]
    assert np.flatnonzero(np.signbit(operand) & (operand == 0)).tolist() == [5]
    assert bf16_hex(MULTIPLIER.decode(arrays, (1, 16))) == VALUES


def test_F_3_encoder_vector() -> None:
    w = [0.05, -0.11, 0.3, 0.42, -0.6, 0.9, -1.2, 1.1, 0, 0.02, -0.03, 0.7, 0.25, -0.5, 0.33, 0.8]
    arrays = MULTIPLIER.encode(np.array([w], np.float32))
    assert arrays["global_scale"].view(np.uint32) == 0x39EA0EA2
    assert hexes(arrays["scale"]) == "7E"
    assert hexes(arrays["codes"]) == "90 43 6D 7F 00 58 C2 63"


def test_F_4_vector() -> None:
    divisor = np.array([f32(0x4565D279)])
    arrays = one_block(divisor)
    assert bf16_hex(DIVISOR.decode(arrays, (1, 16))) == VALUES
    # The two serialisations agree after bf16; before it they differ by an ulp at position 2.
    divided = np.float32(6) * (np.float32(3.25) / divisor[0])
    multiplied = np.float32(6) * (np.float32(3.25) * f32(0x398E946E))
    assert abs(int(divided.view(np.int32)) - int(multiplied.view(np.int32))) == 1


def test_W4_both_senses_of_the_global_scale_give_equal_bits() -> None:
    rng = np.random.default_rng(0)
    shape = (5, 48)
    arrays = MULTIPLIER.encode(rng.standard_normal(shape).astype(np.float32))
    other = {**arrays, "global_scale": (np.float32(1) / arrays["global_scale"]).reshape(1)}
    x = rng.standard_normal((3, 48)).astype(BFLOAT16)
    ours = reference.linear(x, arrays, shape, MULTIPLIER)
    theirs = reference.linear(x, other, shape, DIVISOR)
    assert (ours.view(np.int32) == theirs.view(np.int32)).all()
    assert (MULTIPLIER.decode(arrays, shape) == DIVISOR.decode(other, shape)).all()


def test_every_code_under_every_scale() -> None:
    codes = np.tile(data("10 32 54 76 98 BA DC FE"), (256, 1))
    arrays = {
        "codes": codes,
        "scale": np.arange(256, dtype=np.uint8)[:, None],
        "global_scale": np.array(f32(0x398E946E)),
    }
    exact = E2M1_TABLE[None, :] * E4M3_TABLE[:, None]
    assert np.array_equal(MULTIPLIER.operand(arrays, (256, 16)), exact, equal_nan=True)
    expected = exact.astype(np.float64) * np.float64(arrays["global_scale"])
    assert np.array_equal(MULTIPLIER.decode64(arrays, (256, 16)), expected, equal_nan=True)
    assert np.isnan(MULTIPLIER.decode(arrays, (256, 16))[[0x7F, 0xFF]]).all()


def test_encoders_write_zero_blocks_and_positive_zeros() -> None:
    values = np.zeros((2, 32), np.float32)
    values[0, :16] = np.linspace(-1, 1, 16)
    values[1, 3] = -0.0
    for format in (MULTIPLIER, DIVISOR):
        arrays = format.encode(values)
        assert arrays["scale"].tolist() == [[0x7E, 0x38], [0x38, 0x38]]
        assert (arrays["codes"][1] == 0).all()
        assert (format.decode(arrays, values.shape)[1] == 0).all()
        zero = format.encode(np.zeros((1, 16), np.float32))
        assert zero["global_scale"].reshape(-1).tolist() == [1]


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_a_global_scale_that_is_no_positive_number_is_refused(value: float) -> None:
    arrays = MULTIPLIER.encode(np.ones((1, 16), np.float32))
    with pytest.raises(ValueError, match=r"nvfp4: 'weight_scale_2' is \[.*\]; it must be finite and positive"):
        MULTIPLIER.check({**arrays, "global_scale": np.array(value, np.float32)}, (1, 16))


def test_gate_and_up_of_different_globals_are_kept_apart() -> None:
    gate, up = (MULTIPLIER.encode(np.full((1, 16), size, np.float32)) for size in (1.0, 2.0))
    with pytest.raises(ValueError, match="nvfp4: the parts have different 'weight_scale_2'; keep them apart"):
        MULTIPLIER.concatenate([gate, up], [(1, 16)] * 2, 0)
    assert MULTIPLIER.concatenate([gate, gate], [(1, 16)] * 2, 0)["codes"].shape == (2, 8)


def test_cuts_and_shapes_off_the_groups_are_refused_by_name() -> None:
    arrays = DIVISOR.encode(np.ones((3, 48), np.float32))
    with pytest.raises(ValueError, match="nvfp4_divisor: cannot be cut at 24 along K; cuts are multiples of 16"):
        DIVISOR.slice(arrays, (3, 48), 1, 0, 24)
    with pytest.raises(ValueError, match="nvfp4_divisor: K = 24 is not a multiple of 16"):
        DIVISOR.encode(np.ones((3, 24), np.float32))
    assert DIVISOR.arrays((3, 48))["input_scale"].suffix == "input_global_scale"
