from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest

from dgpp.layers.rope import Rope, apply_rope

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
