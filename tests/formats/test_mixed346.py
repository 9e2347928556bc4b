from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.formats import reference
from dgpp.formats.base import Activations, Arrays, Shape
from dgpp.formats.bitstream import pack
from dgpp.formats.minifloat import BFLOAT16
from dgpp.formats.mixed346 import TABLES, Mixed346, quantise
from dgpp.formats.nf4i8 import rotate
from tests.formats.vectors import bf16, f32, words


def three_bit_row() -> dict[str, np.ndarray]:
    return {"indices": pack((3 * np.arange(128) + 1) % 8, 3, np.int32)[None], "scale": bf16("3C4A")[None]}


def test_F_11_bit_streams() -> None:
    row = three_bit_row()
    assert (row["indices"][0, :3] == words(0xE1CC55E1, 0x55E1CC55, 0xCC55E1CC)).all()
    assert (Mixed346(3).operand(row, (1, 128)) == TABLES[3][(3 * np.arange(128) + 1) % 8]).all()
    six = {"indices": pack((7 * np.arange(128) + 5) % 64, 6, np.int32)[None], "scale": bf16("3C4A")[None]}
    assert (six["indices"][0, :3] == words(0x21693305, 0xB13DDAFA, 0xBA781948)).all()
    assert (Mixed346(6).operand(six, (1, 128)) == (7 * np.arange(128) + 5) % 64 - 32).all()
    for bits, size in ((3, 48), (4, 64), (6, 96)):
        assert Mixed346(bits).arrays((1, 128))["indices"].nbytes == size


def test_F_11_activation_vector() -> None:
    x = ((np.arange(128) - 64) / 16).astype(BFLOAT16)[None]
    a = Mixed346(3).prepare(x, {}, (1, 128))
    assert a.scales is not None
    assert a.values[0, :8].tolist() == [-127, -1, -3, 0, -5, 0, 0, 0]
    assert a.scales.tolist() == [[f32(0x3E0A1428)]]


def test_F_11_group_dot_vector() -> None:
    codes = ((np.arange(128) % 11) - 5).astype(np.float32)[None]
    row = three_bit_row()
    dot = reference.lane_dot(codes, Mixed346(3).operand(row, (1, 128)))
    assert dot == -167

    class Fixed(Mixed346):
        def prepare(self, x: np.ndarray, arrays: Arrays, shape: Shape) -> Activations:
            return Activations(codes, np.array([[0.5]], np.float32))

    y = reference.linear(np.zeros((1, 128), BFLOAT16), row, (1, 128), Fixed(3))
    assert y[0, 0] == np.float32(-167) * np.float32(np.float32(0.0123291015625) * np.float32(0.5))
    assert y[0, 0] == pytest.approx(-1.02948, rel=1e-5)


def test_F_11_limits_of_activation_codes() -> None:
    zero = quantise(np.zeros((1, 128), np.float32))
    assert zero.scales is not None
    assert zero.scales[0, 0] == np.float32(1e-30)
    assert (zero.values == 0).all()
    x = np.zeros((1, 128), np.float32)
    x[0, :4] = [127, -127, 0.5, 1.5]
    assert quantise(x).values[0, :4].tolist() == [127, -127, 0, 2]  # ties to even
    rows = np.random.default_rng(0).standard_normal((3, 256)).astype(np.float32)
    ours, theirs = quantise(rows), quantise(jnp.asarray(rows))
    assert (np.asarray(theirs.values) == ours.values).all()
    assert (np.asarray(theirs.scales) == ours.scales).all()


@pytest.mark.parametrize("bits", [3, 4, 6])
def test_group_sums_are_exact_integers_and_the_product_is_close(bits: int) -> None:
    rng = np.random.default_rng(bits)
    shape = (10, 384)
    arrays = Mixed346(bits).encode(rng.standard_normal(shape).astype(np.float32))
    Mixed346(bits).check(arrays, shape)
    x = rng.standard_normal((5, 384)).astype(BFLOAT16)
    a = quantise(rotate(x))
    assert a.scales is not None
    levels = Mixed346(bits).operand(arrays, shape).reshape(10, 3, 128).astype(np.int64)
    dots = np.einsum("rgk,ngk->rng", a.values.reshape(5, 3, 128).astype(np.int64), levels)
    assert np.abs(dots).max() < 2**21
    expected = np.zeros((5, 10), np.float32)
    for g in range(3):
        factor = arrays["scale"].astype(np.float32)[None, :, g] * a.scales[:, g, None]
        expected = expected + dots[..., g].astype(np.float32) * factor
    y = reference.linear(x, arrays, shape, Mixed346(bits))
    assert (y == expected).all()
    plain = x.astype(np.float64) @ Mixed346(bits).decode64(arrays, shape).T
    assert np.abs(y - plain).max() < 0.03 * np.abs(plain).max()


def test_cuts_off_the_groups_are_refused_by_name() -> None:
    arrays = Mixed346(3).encode(np.ones((2, 256), np.float32))
    with pytest.raises(ValueError, match="mixed346_3: cannot be cut at 64 along K; cuts are multiples of 128"):
        Mixed346(3).slice(arrays, (2, 256), 1, 64, 256)
    half = Mixed346(3).slice(arrays, (2, 256), 1, 128, 256)
    assert half["indices"].shape == (2, 12)
