from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.formats import reference
from dgpp.formats.minifloat import BFLOAT16
from dgpp.formats.nf4i8 import LEVELS, NF4I8, rotate
from tests.formats.vectors import bf16, bf16_hex, words


def test_F_10_vector() -> None:
    arrays = {"indices": np.full((1, 16), words(0x77777777)), "scale": bf16("3C4A")[None]}
    arrays["indices"][0, 0] = words(0xC3E187F0)[0]
    assert NF4I8().operand(arrays, (1, 128))[0, :8].tolist() == [-127, 127, 0, 10, -88, 92, -50, 56]
    expected = [-1.565795898, 1.565795898, 0, 0.123291016, -1.084960938, 1.134277344, -0.616455078, 0.690429688]
    assert NF4I8().rotated(arrays, (1, 128))[0, :8] == pytest.approx(expected, rel=1e-8)
    assert (NF4I8().rotated(arrays, (1, 128))[0, 8:] == 0).all()


def test_F_10_levels_are_those_of_nf4() -> None:
    """rint(127 * NF4), with the NF4 values as published in QLoRA (Dettmers et al. 2023)."""
    nf4 = [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635),
        *(-0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725),
        *(0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
    ]
    assert (np.rint(127 * np.array(nf4)) == LEVELS).all()


def test_F_10_rotation_vectors() -> None:
    one = np.zeros((1, 32), BFLOAT16)
    one[0, 0] = 1
    assert bf16_hex(rotate(one)) == " ".join(["3E35"] * 32)
    ramp = np.arange(32).astype(BFLOAT16)[None]
    assert bf16_hex(rotate(ramp)[:, :6]) == "42AF C035 C0B5 0000 C135 0000"
    x = np.random.default_rng(0).standard_normal((3, 128)).astype(BFLOAT16)
    assert (np.asarray(rotate(jnp.asarray(x))) == rotate(x)).all()


def test_the_rotation_of_activations_undoes_that_of_the_weight() -> None:
    rng = np.random.default_rng(0)
    shape = (9, 256)
    values = rng.standard_normal(shape).astype(np.float32)
    arrays = NF4I8().encode(values)
    NF4I8().check(arrays, shape)
    decoded = NF4I8().decode64(arrays, shape)
    assert np.sqrt(np.mean((decoded - values) ** 2)) < 0.11
    x = rng.standard_normal((4, 256)).astype(BFLOAT16)
    exact = x.astype(np.float64) @ decoded.T
    y = reference.linear(x, arrays, shape, NF4I8())
    # The only inexact step before the sums is the rounding of the rotated activations to bf16.
    assert np.abs(y - exact).max() < 2**-8 * np.abs(x.astype(np.float64)).sum(1).max() * np.abs(decoded).max() / 8
    rotated = rotate(x).astype(np.float64) @ NF4I8().rotated(arrays, shape).astype(np.float64).T
    assert np.abs(y - rotated).max() < 1e-6 * np.abs(rotated).max()


def test_wrong_shapes_and_cuts_are_refused_by_name() -> None:
    arrays = NF4I8().encode(np.ones((2, 256), np.float32))
    with pytest.raises(ValueError, match="nf4i8: cannot be cut at 64 along K; cuts are multiples of 128"):
        NF4I8().slice(arrays, (2, 256), 1, 0, 64)
    with pytest.raises(ValueError, match="nf4i8: K = 192 is not a multiple of 128"):
        NF4I8().encode(np.ones((2, 192), np.float32))
    with pytest.raises(ValueError, match=r"nf4i8: weight_shape is \[2, 128\], not \[2, 256\]"):
        NF4I8().check({**arrays, "shape": np.array([2, 128])}, (2, 256))
