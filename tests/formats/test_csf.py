from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dgpp.formats import csf, format_named
from tests.formats.vectors import data, hexes


def plane_of_the_vector() -> np.ndarray:
    return np.array([[0x50, 0x51, 0x5F, 0x41], [0x60, 0x70, 0x6F, 0x62], *[[0x50] * 4] * 14], np.uint8)


def test_F_5_vector() -> None:
    slabs, exceptions = csf.encode(plane_of_the_vector(), 4)
    expected = "50 60" + " 41" * 14 + " 10 0F 00 2F" + " FF FF" * 14
    assert slabs.shape == (1, 48)
    assert hexes(slabs) == expected
    assert exceptions.tolist() == [0x41000003, 0x70000005]
    assert (csf.expand(data(expected)[None], exceptions, 4, 4) == plane_of_the_vector()).all()


def test_F_5_the_mxfp4_sibling_has_one_bit_offsets() -> None:
    """16 base bytes and 16 * ceil(C / 8) selector bytes; bit c & 7 of byte c >> 3."""
    plane = np.full((16, 10), 120, np.uint8)
    plane[0, 9] = 121
    plane[1, 0] = 119
    plane[2, 4] = 200
    slabs, exceptions = csf.encode(plane, 1)
    assert slabs.shape == (1, 16 + 32)
    assert slabs[0, :4].tolist() == [120, 119, 119, 119]
    assert slabs[0, 16:22].tolist() == [0, 0b10, 0b11111110, 0b11, 0b11101111, 0b11]
    assert exceptions.tolist() == [(200 << 24) | (2 * 10 + 4)]
    assert (csf.expand(slabs, exceptions, 10, 1) == plane).all()


@settings(max_examples=40, deadline=None)
@given(hnp.arrays(np.uint8, st.sampled_from([(16, 2), (32, 6), (16, 16)])), st.sampled_from([1, 4]))
def test_any_plane_survives(plane: np.ndarray, bits: int) -> None:
    slabs, exceptions = csf.encode(plane, bits)
    csf.check(exceptions, *plane.shape)
    assert (csf.expand(slabs, exceptions, plane.shape[1], bits) == plane).all()
    assert slabs.shape == (plane.shape[0] // 16, csf.slab_bytes(plane.shape[1], bits))


def test_exceptions_out_of_order_or_out_of_the_plane_are_refused() -> None:
    with pytest.raises(ValueError, match="csf: the exceptions do not ascend by position"):
        csf.check(np.array([5, 5], np.uint32), 16, 4)
    with pytest.raises(ValueError, match="csf: exception at 64 lies outside the plane of 16 x 4 bytes"):
        csf.check(np.array([64], np.uint32), 16, 4)
    with pytest.raises(ValueError, match="multiple of 16 rows"):
        csf.encode(np.zeros((8, 4), np.uint8), 4)


@pytest.mark.parametrize(("tag", "inner", "width"), [("nvfp4_csf", "nvfp4", 64), ("mxfp4_csf", "mxfp4", 512)])
def test_coded_weights_are_the_inner_format_bit_for_bit(tag: str, inner: str, width: int) -> None:
    coded, plain = format_named(tag), format_named(inner)
    shape = (64, width)
    rng = np.random.default_rng(0)
    values = (rng.standard_normal(shape) * np.exp2(rng.integers(-20, 3, (64, 1)))).astype(np.float32)
    arrays = coded.encode(values)
    assert coded.loads_as == inner
    loaded = coded.load(arrays, shape)
    for name, array in plain.encode(values).items():
        assert (loaded[name] == array).all()
    assert coded.arrays(shape)["fixed"].tensor("up_proj") == f"up_proj.weight_scale.{inner}_csf_fixed"
    assert coded.arrays(shape)["exceptions"].tensor("up_proj") == f"up_proj.weight_scale.{inner}_csf_exceptions"
    assert (coded.decode(arrays, shape) == plain.decode(loaded, shape)).all()
    # Kept compressed, a block of rows in the middle has its own exceptions.
    block = coded.rows(arrays, shape, 16, 32)
    assert (coded.operand(block, shape) == plain.operand(loaded, shape)[16:48]).all()


def test_slices_rebase_their_exceptions() -> None:
    format, shape = format_named("nvfp4_csf"), (32, 128)
    arrays = format.encode(np.ones(shape, np.float32))
    plane = np.random.default_rng(0).integers(0, 126, (32, 8), dtype=np.uint8)
    arrays["fixed"], arrays["exceptions"] = csf.encode(plane, 4)
    assert arrays["exceptions"].size > 20
    part = format.slice(arrays, shape, 1, 32, 96)
    format.check(part, (32, 64))
    assert (csf.expand(part["fixed"], part["exceptions"], 4, 4) == plane[:, 2:6]).all()
    with pytest.raises(ValueError, match="nvfp4_csf: cannot be cut at 16 along K; cuts are multiples of 32"):
        format.slice(arrays, shape, 1, 16, 96)
    with pytest.raises(ValueError, match="nvfp4_csf: cannot be cut at 8 along N; cuts are multiples of 16"):
        format.slice(arrays, shape, 0, 0, 8)
    with pytest.raises(ValueError, match="nvfp4_csf: a scale plane needs N % 16 = 0"):
        format.encode(np.ones((8, 128), np.float32))
