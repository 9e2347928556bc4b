from __future__ import annotations

import numpy as np
import pytest

from dgpp.formats import format_named, reference
from dgpp.formats.gptq import GPTQ, zero_version
from dgpp.formats.minifloat import BFLOAT16
from tests.formats.vectors import words


def test_F_8_2_vector() -> None:
    codes = [12, 0, 11, 6, 12, 15, 0, 7]
    arrays = {
        "qweight": np.full((1, 8), words(0x70FC6B0C)),
        "scales": np.full((1, 8), 0.01171875, np.float16),
        "qzeros": np.full((1, 1), words(0x77777777)),
    }
    format = GPTQ(4, 128)
    format.check(arrays, (8, 8))
    values = format.decode(arrays, (8, 8))
    expected = [0.046875, -0.09375, 0.03515625, -0.0234375, 0.046875, 0.08203125, -0.09375, -0.01171875]
    assert values.tolist() == [expected] * 8
    assert values[0].tolist() == [0.01171875 * (code - 8) for code in codes]


@pytest.mark.parametrize(
    ("bits", "word", "version"), [(4, 0x77777777, 1), (4, 0x88888888, 2), (8, 0x7F7F7F7F, 1), (8, 0x80808080, 2)]
)
def test_W5_the_version_of_symmetric_zero_points_is_told_by_their_value(bits: int, word: int, version: int) -> None:
    qzeros = np.full((2, 3), words(word))
    assert zero_version(qzeros, bits) == version
    arrays = GPTQ(bits, 128).encode(np.random.default_rng(0).standard_normal((32, 256)).astype(np.float32))
    other = {**arrays, "qzeros": np.full_like(arrays["qzeros"], words(word)[0])}
    GPTQ(bits, 128).check(other, (32, 256))  # the same weights under either version
    assert (GPTQ(bits, 128).decode(other, (32, 256)) == GPTQ(bits, 128).decode(arrays, (32, 256))).all()


@pytest.mark.parametrize("word", [0x78777777, 0x66666666, 0x00000000])
def test_W5_ambiguous_zero_points_are_refused(word: int) -> None:
    arrays = GPTQ(4, 128).encode(np.ones((16, 128), np.float32))
    arrays["qzeros"][0, 1] = words(word)[0]
    with pytest.raises(ValueError, match=r"gptq_int4_g128: qzeros hold the fields .* their meaning is ambiguous"):
        GPTQ(4, 128).check(arrays, (16, 128))


def test_F_8_2_asymmetric_zero_points_and_fields_of_15() -> None:
    """z = 5 is stored as 4 (version 1) or 5 (version 2); a stored 15 means 16, with no carry into its neighbour."""
    for version, word in ((1, 0x44444444), (2, 0x55555555)):
        format = format_named(f"gptq_int4_g128_asym_v{version}")
        arrays = {
            "qweight": np.zeros((1, 8), np.int32),
            "scales": np.ones((1, 8), np.float16),
            "qzeros": np.full((1, 1), words(word)),
        }
        assert (format.decode(arrays, (8, 8)) == -5).all()
    arrays["qzeros"] = np.full((1, 1), words(0x0F0F0F0F))
    assert GPTQ(4, 128, 1).decode(arrays, (8, 8))[:, 0].tolist() == [-16, -1] * 4
    assert GPTQ(4, 128, 2).decode(arrays, (8, 8))[:, 0].tolist() == [-15, 0] * 4


def test_F_8_2_asymmetric_encoders_stay_within_half_a_step() -> None:
    values = (np.random.default_rng(0).standard_normal((16, 256)) + 0.3).astype(np.float32)
    for version in (1, 2):
        format = GPTQ(4, 128, version)
        arrays = format.encode(values)
        step = arrays["scales"].astype(np.float32).T.repeat(128, 1)
        assert (np.abs(format.decode(arrays, values.shape) - values) <= step * 1.01).all()
    positive = np.abs(values) + 1  # every zero point would be 0, which version 1 cannot store
    assert (GPTQ(4, 128, 1).encode(positive)["qzeros"] == 0).all()
    assert np.isfinite(GPTQ(4, 128, 1).decode(GPTQ(4, 128, 1).encode(positive), values.shape)).all()


def test_F_0_8_scales_of_the_symmetric_encoder_are_signed() -> None:
    """scale = w[argmax |w|] / -2^(bits-1), so the largest weight has the code 0 and its value is exact."""
    values = np.random.default_rng(0).standard_normal((8, 128)).astype(np.float16).astype(np.float32)
    for bits in (4, 8):
        arrays = GPTQ(bits, 128).encode(values)
        largest = np.take_along_axis(values, np.abs(values).argmax(1)[:, None], 1)[:, 0]
        assert (np.sign(arrays["scales"][0].astype(np.float32)) == -np.sign(largest)).all()
        assert (np.sign(largest) > 0).any()
        decoded = GPTQ(bits, 128).decode(arrays, values.shape)
        assert np.take_along_axis(decoded, np.abs(values).argmax(1)[:, None], 1)[:, 0] == pytest.approx(largest)


def test_symmetric_weights_load_n_first_without_zero_points() -> None:
    shape = (24, 256)
    format = GPTQ(4, 128)
    arrays = format.encode(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    held = format_named(format.loads_as)
    assert held.name == "int4_g128_f16"
    loaded = format.load(arrays, shape)
    held.check(loaded, shape)
    assert loaded.keys() == {"codes", "scale"}
    assert (held.decode(loaded, shape) == format.decode(arrays, shape)).all()
    assert GPTQ(4, 128, 1).loads_as == "gptq_int4_g128_asym_v1"


def test_W9_a_short_tail_group_is_kept() -> None:
    shape = (16, 352)
    for tag in ("gptq_int4_g128", "gptq_int4_g128_asym_v1"):
        format = format_named(tag)
        values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        arrays = format.encode(values)
        assert arrays["scales"].shape == (3, 16)
        assert np.abs(format.decode(arrays, shape) - values).max() < 0.6
    with pytest.raises(ValueError, match="asym_v1: cannot be padded after K = 352, which ends inside a group"):
        format.pad(arrays, shape, 1, 512)


def test_act_order_sorts_columns_and_activations_alike() -> None:
    shape = (16, 256)
    rng = np.random.default_rng(0)
    plain, act = GPTQ(4, 64), GPTQ(4, 64, act_order=True)
    arrays = act.encode(rng.standard_normal(shape).astype(np.float32))
    arrays["g_idx"] = rng.permutation(arrays["g_idx"])
    act.check(arrays, shape)
    scales = arrays["scales"].astype(np.float64).T[:, arrays["g_idx"]]
    codes = plain.decode64({**arrays, "scales": np.ones_like(arrays["scales"])}, shape)
    assert (act.decode64(arrays, shape) == codes * scales).all()
    x = rng.standard_normal((3, 256)).astype(BFLOAT16)
    y = reference.linear(x, arrays, shape, act)
    exact = x.astype(np.float64) @ act.decode64(arrays, shape).T
    assert np.abs(y - exact).max() < 1e-6 * np.abs(exact).max()
    with pytest.raises(ValueError, match=r"gptq_int4_g64: g_idx is not k // 64; the weight is in act-order"):
        plain.check(arrays, shape)
    with pytest.raises(ValueError, match="gptq_int4_g64_act: cannot be cut along K"):
        act.slice(arrays, shape, 1, 0, 64)
    uneven = {**arrays, "g_idx": np.where(arrays["g_idx"] == 0, 1, arrays["g_idx"]).astype(np.int32)}
    with pytest.raises(ValueError, match="g_idx does not have 64 members in every group"):
        act.check(uneven, shape)


def test_cuts_inside_groups_and_words_are_refused_by_name() -> None:
    """640 / 2 = 320 is no multiple of 128: the AutoRound checkpoint is for one node."""
    format, shape = GPTQ(4, 128), (16, 640)
    arrays = format.encode(np.ones(shape, np.float32))
    with pytest.raises(ValueError, match="gptq_int4_g128: cannot be cut at 320 along K; cuts are multiples of 128"):
        format.slice(arrays, shape, 1, 0, 320)
    with pytest.raises(ValueError, match="gptq_int4_g128_asym_v1: cannot be cut at 4 along N; cuts are multiples of 8"):
        GPTQ(4, 128, 1).slice(arrays, shape, 0, 0, 4)
