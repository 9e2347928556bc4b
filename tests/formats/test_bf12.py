from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpp.formats import Weight, reference
from dgpp.formats.bf12 import BF12
from dgpp.formats.minifloat import BFLOAT16
from dgpp.kernels.linear.reference import linear
from tests.formats.vectors import bf16, hexes


def rebuilt(values: np.ndarray) -> np.ndarray:
    """The bfloat16 bits that come back."""
    arrays = BF12().from_bf16(values)
    BF12().check(arrays, values.shape)
    decoded = BF12().operand(BF12().rows(arrays, values.shape, 0, values.shape[0]), values.shape)
    return (decoded.view(np.uint32) >> 16).astype(np.uint16)


def size(values: np.ndarray) -> float:
    """Bytes per weight of the packed form."""
    return sum(array.nbytes for array in BF12().from_bf16(values).values()) / values.size


def test_F_13_vector() -> None:
    values = np.full((1, 1024), 1, BFLOAT16)
    special = {0: "3F80", 1: "BF00", 2: "4049", 5: "0000", 8: "3DCC", 256: "3E99", 512: "C000", 768: "3F00"}
    for column, bits in special.items():
        values[0, column] = bf16(bits)[0]
    arrays = BF12().from_bf16(values)
    assert arrays["rows"].tolist() == [0, 0x39000000, 1, 0]
    assert arrays["escapes"].tolist() == [0x00050000]
    packed = arrays["packed"][0]
    assert hexes(packed[:8]) == "00 80 49 00 00 00 00 00"
    assert hexes(packed[8:16]) == "19 00 00 00 00 00 00 00"
    assert packed[16] == 0x4C
    assert packed[512] == 0x80
    assert packed[520] == 0x00
    assert hexes(packed[1024:1040]) == "CD DE FD DD DB DD DD DD DE DD DD DD DC DD DD DD"
    assert hexes(packed[1040:1044]) == "D9 DD DD DD"
    assert (rebuilt(values) == values.view(np.uint16)).all()


def test_all_bit_patterns_come_back() -> None:
    """Every bfloat16, NaN with its payload and infinity included: rows of few exponents, and rows of all."""
    every = np.arange(65536, dtype=np.uint16)
    narrow = every.view(BFLOAT16).reshape(64, 1024)
    assert (rebuilt(narrow) == every.reshape(64, 1024)).all()
    shuffled = np.random.default_rng(0).permutation(every).view(BFLOAT16).reshape(64, 1024)
    arrays = BF12().from_bf16(shuffled)
    assert arrays["raw"].shape == (64, 1024)
    assert not BF12().worthwhile(arrays, shuffled.shape)
    assert (rebuilt(shuffled) == shuffled.view(np.uint16)).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 200), st.sampled_from([1, 3]))
def test_weights_with_outliers_come_back(seed: int, outliers: int, rows: int) -> None:
    """Around the limit of 64 escapes a row, at its first and last columns too."""
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal((rows, 2048)) / 64).astype(BFLOAT16)
    columns = rng.choice(2048, min(outliers, 2046) + 2, replace=False)
    columns[:2] = 0, 2047
    values[0, columns] = rng.integers(0, 65536, len(columns), dtype=np.uint16).view(BFLOAT16)
    assert (rebuilt(values) == values.view(np.uint16)).all()


def test_adversarial_rows() -> None:
    """Exactly 64 and 65 escapes, ties between windows, only zeros, only NaN, both ends of the exponent range."""
    one, far = bf16("3F80")[0], bf16("0080")[0]
    rows = np.full((8, 1024), one, BFLOAT16)
    rows[0, :64] = far
    rows[1, :65] = far
    rows[2, :512] = far  # a tie: the lowest window wins, and half the row escapes
    rows[3] = 0
    rows[4] = np.nan
    rows[5] = bf16("7F80")[0]
    rows[6, ::2] = bf16("8000")[0]
    rows[7] = bf16("7F7F")[0]
    arrays = BF12().from_bf16(rows)
    words = arrays["rows"].reshape(-1, 2)
    assert words[1, 0] - words[0, 0] == 64
    assert (words[:8, 1] >= 0x80000000).tolist() == [False, True, True, False, False, False, True, False]
    assert (rebuilt(rows) == rows.view(np.uint16)).all()


def test_bytes_per_weight_of_trained_looking_and_of_random_weights() -> None:
    """Gaussian rows of different size, with a few tiny weights, as trained matrices have them: 1.5 bytes and little
    more. Random bits gain nothing, and the format says so."""
    rng = np.random.default_rng(0)
    real = (rng.standard_normal((256, 4096)) * np.exp2(rng.uniform(-9, -4, (256, 1)))).astype(BFLOAT16)
    arrays = BF12().from_bf16(real)
    assert (rebuilt(real) == real.view(np.uint16)).all()
    assert BF12().worthwhile(arrays, real.shape)
    assert arrays["escapes"].size < 0.001 * real.size
    assert 1.5 < size(real) < 1.51
    noise = rng.integers(0, 65536, (16, 1024), dtype=np.uint16).view(BFLOAT16)
    assert (rebuilt(noise) == noise.view(np.uint16)).all()
    assert not BF12().worthwhile(BF12().from_bf16(noise), noise.shape)


def test_slices_are_encoded_anew_and_shapes_refused_by_name() -> None:
    shape = (4, 2048)
    values = np.random.default_rng(0).standard_normal(shape).astype(BFLOAT16)
    arrays = BF12().from_bf16(values)
    part = BF12().slice(arrays, shape, 1, 1024, 2048)
    assert (BF12().decode(part, (4, 1024)) == values[:, 1024:].astype(np.float32)).all()
    with pytest.raises(ValueError, match="bf12: cannot be cut at 512 along K; cuts are multiples of 1024"):
        BF12().slice(arrays, shape, 1, 0, 512)
    with pytest.raises(ValueError, match="bf12: K = 1536 is not a multiple of 1024 up to 65536"):
        BF12().encode(np.ones((2, 1536), np.float32))
    with pytest.raises(ValueError, match="bf12: K = 66560 is not a multiple"):
        BF12().arrays((1, 65 * 1024))


def stack() -> np.ndarray:
    """Three matrices: one without escapes, one with a few, one all of whose rows stay raw."""
    rng = np.random.default_rng(0)
    values = np.ones((3, 4, 2048), BFLOAT16)
    values[1] = (rng.standard_normal((4, 2048)) / 64).astype(BFLOAT16)
    values[2] = np.exp2(rng.uniform(-100, 100, (4, 2048))).astype(BFLOAT16)
    return values


def test_matrices_of_a_stack_have_lists_of_one_length() -> None:
    values = stack()
    arrays = BF12().from_bf16(values)
    assert arrays["escapes"].shape == (3, BF12().from_bf16(values[1])["escapes"].size)
    assert arrays["raw"].shape == (3, 4, 2048)
    assert (BF12().decode(arrays, (4, 2048)) == values.astype(np.float32)).all()
    x = np.random.default_rng(1).standard_normal((2, 2048)).astype(BFLOAT16)
    w = Weight({name: jnp.asarray(array) for name, array in arrays.items()}, "bf12", (4, 2048))
    for layer in range(3):
        found = np.asarray(linear(x, w, jnp.int32(layer), jnp.int32(2)))
        alone = reference.linear(x, BF12().from_bf16(values[layer]), (4, 2048), BF12())
        assert (found.view(np.int32) == alone.view(np.int32)).all()


def test_a_stack_is_cut_padded_and_joined() -> None:
    values, shape = stack(), (3, 4, 2048)  # as layers, or as experts of one
    arrays = BF12().from_bf16(values)
    right = BF12().slice(arrays, (4, 2048), 1, 1024, 2048)
    assert (BF12().decode(right, (4, 1024)) == values[..., 1024:].astype(np.float32)).all()
    lower = BF12().slice(arrays, shape, 1, 2, 4)
    assert (BF12().decode(lower, (3, 2, 2048)) == values[:, 2:].astype(np.float32)).all()
    grown = BF12().decode(BF12().pad(lower, (3, 2, 2048), 1, 3), (3, 3, 2048))
    assert (grown == np.pad(values[:, 2:].astype(np.float32), [(0, 0), (0, 1), (0, 0)])).all()
    both = BF12().concatenate([lower, arrays], [(3, 2, 2048), shape], 1)
    assert (BF12().decode(both, (3, 6, 2048)) == np.concatenate([values[:, 2:], values], 1).astype(np.float32)).all()
