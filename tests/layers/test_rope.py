from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from dgpp.kernels.rope.reference import apply_mrope, apply_rope
from dgpp.layers.rope import Rope

BF16 = ml_dtypes.bfloat16


def test_a_turn_equals_numpy_bit_for_bit_and_the_complex_product_to_one_rounding() -> None:
    rng = np.random.default_rng(0)
    rope = Rope(32, 10000.0)
    position = np.array([0, 1, 7, 500])
    cos, sin = (table[position] for table in rope.table(512))
    x = rng.standard_normal((4, 3, 32)).astype(BF16)
    out = np.asarray(jax.jit(apply_rope)(x, cos, sin, np.int32(0)))
    first, second = x[..., :16].astype(np.float32), x[..., 16:].astype(np.float32)
    c, s = cos[:, None], sin[:, None]
    expected = np.concatenate([first * c - second * s, second * c + first * s], -1).astype(BF16)
    assert out.tobytes() == expected.tobytes()
    turned = (first + 1j * second.astype(np.float64)) * np.exp(1j * position[:, None, None] * rope.inv_freq())
    exact = np.concatenate([turned.real, turned.imag], -1)
    assert np.abs(out.astype(np.float64) - exact).max() <= 2**-8 * np.abs(exact).max()
    assert (out[0] == x[0]).all()


def test_the_old_and_the_new_spelling_give_the_same_settings() -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling["original_max_position_embeddings"] = 8192
    old = Rope.from_config({"rope_theta": 500000.0, "rope_scaling": scaling}, 64, 131072)
    new = Rope.from_config({"rope_parameters": {**scaling, "rope_theta": 500000.0}}, 64, 131072)
    assert old == new == Rope(64, 500000.0, "llama3", 8.0, 8192, 1.0, 4.0)


def test_llama3_keeps_fast_pairs_and_divides_slow_ones() -> None:
    plain = Rope(64, 500000.0).inv_freq()
    scaled = Rope(64, 500000.0, "llama3", 8.0, 8192, 1.0, 4.0).inv_freq()
    wavelength = 2 * np.pi / plain
    assert (scaled[wavelength < 8192 / 4] == plain[wavelength < 8192 / 4]).all()
    assert np.allclose(scaled[wavelength > 8192], plain[wavelength > 8192] / 8, rtol=1e-15)
    between = (wavelength >= 8192 / 4) & (wavelength <= 8192)
    assert between.any()
    assert ((scaled < plain) & (scaled > plain / 8))[between].all()


def test_linear_divides_every_angle() -> None:
    assert np.allclose(Rope(32, 10000.0, "linear", 4.0).inv_freq() * 4, Rope(32, 10000.0).inv_freq(), rtol=1e-15)


def test_yarn_scales_the_table_by_its_attention_factor() -> None:
    raw = {
        "rope_theta": 10000.0,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    }
    rope = Rope.from_config(raw, 32, 256)
    assert rope.attention_factor == pytest.approx(0.1 * np.log(4) + 1)
    cos, _ = rope.table(1)
    assert cos[0] == pytest.approx(rope.attention_factor)
    plain = Rope(32, 10000.0).inv_freq()
    assert rope.inv_freq()[0] == plain[0]
    assert rope.inv_freq()[-1] == pytest.approx(plain[-1] / 4)


@pytest.mark.parametrize(
    ("scaling", "message"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, "rope_scaling.rope_type 'dynamic' is not supported"),
        ({"rope_type": "linear"}, "rope_scaling.factor must be a positive number, got None"),
        ({"rope_type": "linear", "factor": float("nan")}, "factor must be a positive number, got nan"),
        ({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": "1"}, "low_freq_factor must be a positive number"),
    ],
)
def test_bad_settings_name_their_field(scaling: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Rope.from_config({"rope_scaling": scaling}, 64, 2048)


MROPE = {"rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10], "mrope_interleaved": True}
QWEN = Rope.from_config({"rope_parameters": MROPE}, 256, 262144)


def test_a_partial_rotation_leaves_the_rest_alone() -> None:
    assert QWEN.rotary_dim == 64
    cos, sin = (table[[5, 9]] for table in QWEN.table(16))
    assert cos.shape == (2, 32)
    x = np.random.default_rng(0).standard_normal((2, 3, 256)).astype(BF16)
    for apply in (apply_rope, apply_mrope):
        out = np.asarray(apply(x, cos, sin, np.int32(0)))
        assert (out[..., 64:] == x[..., 64:]).all()
        assert (out[..., :64] != x[..., :64]).any(axis=-1).all()


def test_trap_mrope_axes_are_interleaved() -> None:
    axis = QWEN.axis_of_frequency()
    assert np.nonzero(axis == 0)[0].tolist() == list(range(0, 31, 3))
    assert np.nonzero(axis == 1)[0].tolist() == list(range(1, 32, 3))
    assert np.nonzero(axis == 2)[0].tolist() == list(range(2, 30, 3))
    cos, sin = QWEN.table(64)
    found = QWEN.angles(jnp.asarray(cos), jnp.asarray(sin), jnp.array([[7, 20, 40], [5, 5, 5], [-1, -1, -1]]))
    for table, rows in zip((cos, sin), found, strict=True):
        assert (np.asarray(rows[0]) == np.where(axis == 0, table[7], np.where(axis == 1, table[20], table[40]))).all()
        assert (np.asarray(rows[1]) == table[5]).all()  # text is plain rotation
        assert (np.asarray(rows[2]) == table[0]).all()  # padding


def test_mrope_rounds_cosine_and_sine_both_products_and_the_sum() -> None:
    x = np.random.default_rng(1).standard_normal((4, 2, 256)).astype(BF16)
    cos, sin = (table[[1, 3, 100, 900]] for table in QWEN.table(1000))
    out = np.asarray(jax.jit(apply_mrope)(x, cos, sin, np.int32(0)))
    c, s = (np.concatenate([t, t], -1).astype(BF16)[:, None].astype(np.float32) for t in (cos, sin))
    part = x[..., :64].astype(np.float32)
    rotated = np.concatenate([-part[..., 32:], part[..., :32]], -1)
    products = [(part * c).astype(BF16).astype(np.float32), (rotated * s).astype(BF16).astype(np.float32)]
    assert out[..., :64].tobytes() == (products[0] + products[1]).astype(BF16).tobytes()


def test_angles_of_a_rope_in_three_axes_are_float32_products() -> None:
    frequency = QWEN.inv_freq()
    assert frequency.dtype == np.float32
    power = np.float32(1e7) ** (np.arange(32, dtype=np.float32) / np.float32(32))
    assert np.allclose(frequency, 1 / power, rtol=3e-7)
    cos, _ = QWEN.table(2000)
    angle = np.float32(1999) * frequency
    assert angle.dtype == np.float32
    assert (cos[1999] == np.cos(angle.astype(np.float64)).astype(np.float32)).all()


def test_trap_the_yarn_band_is_laid_over_four_times_the_context() -> None:
    scaled = QWEN.scaled({"factor": 2.0, "original_max_position_embeddings": 262144})
    assert scaled.yarn_band() == (16, 24)
    assert scaled.attention_factor == pytest.approx(1.0693147182, abs=1e-9)
    plain, found = QWEN.inv_freq(), scaled.inv_freq()
    assert found.dtype == np.float32
    assert (found[:17] == plain[:17]).all()
    assert (found[24:] == plain[24:] / 2).all()
    assert ((found < plain) & (found > plain / 2))[17:24].all()
    other = {"factor": 2.0, "original_max_position_embeddings": 262144, "mrope_cache_factor": 1}
    assert QWEN.scaled(other).yarn_band() == (14, 22)
    cos, sin = scaled.table(3)
    assert cos[0] == pytest.approx(1.0693147182)
    assert sin[0] == pytest.approx(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"factor": 2.0}, "engine.rope_scaling.original_max_position_embeddings is missing"),
        ({"factor": 0.5, "original_max_position_embeddings": 8}, "engine.rope_scaling.factor must be above 1"),
        (
            {"factor": "2", "original_max_position_embeddings": 8},
            "engine.rope_scaling.factor must be a positive number",
        ),
        ({"factor": 2.0, "beta": 3}, "engine.rope_scaling.beta is not known; known are: factor"),
    ],
)
def test_bad_scaling_options_name_their_field(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QWEN.scaled(options)


def test_a_checkpoint_that_scales_its_positions_is_not_scaled_again() -> None:
    with pytest.raises(ValueError, match=r"already scales its positions \(yarn\)"):
        replace(QWEN, kind="yarn").scaled({"factor": 2.0, "original_max_position_embeddings": 8})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"mrope_interleaved": False}, "mrope_interleaved must be true"),
        ({"mrope_section": [11, 11, 11]}, "mrope_section .* three counts that add up to 32"),
        ({"mrope_section": [16, 16]}, "mrope_section .* three counts"),
        ({"partial_rotary_factor": 0.3}, "partial_rotary_factor 0.3 is no even part of head_dim 256"),
        ({"partial_rotary_factor": 1.5}, "partial_rotary_factor 1.5 is no even part"),
    ],
)
def test_bad_axes_and_parts_name_their_field(changed: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"config.json: rope_parameters.{message}"):
        Rope.from_config({"rope_parameters": {**MROPE, **changed}}, 256, 262144)


def test_api_11_the_ramp_as_the_models_route_names_it() -> None:
    assert QWEN.ramp() is None
    options = {"factor": 4.0, "original_max_position_embeddings": 262144, "attn_factor": 0.5}
    ramp = QWEN.scaled(options).ramp()
    assert ramp is not None
    assert list(ramp) == [
        *("rope_type", "factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attn_factor"),
        *("mrope_cache_factor", "mscale", "correction_max_position_embeddings", "scaled_max_position_embeddings"),
    ]
    assert ramp["attn_factor"] == pytest.approx(0.5)
    assert ramp["mscale"] == pytest.approx(0.5 * 1.1386294361)
    assert (ramp["correction_max_position_embeddings"], ramp["scaled_max_position_embeddings"]) == (1048576, 1048576)
