from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgpp.formats.int8_planes import Int8Planes, argmax_candidates, from_planes, to_planes
from dgpp.formats.packed_int import PackedInt
from tests.formats.vectors import hexes


def test_F_9_vector() -> None:
    codes = (np.arange(16) * 17).astype(np.uint8)
    planes = to_planes(codes)
    assert hexes(planes[:8]) == "10 32 54 76 98 BA DC FE"
    assert hexes(planes[8:12]) == "00 AA 55 FF"
    assert hexes(planes[12:]) == "E4 E4 E4 E4"
    assert (from_planes(planes) == codes).all()


def test_every_code_survives_in_numpy_and_jax() -> None:
    codes = np.stack([np.arange(256), np.arange(256)[::-1]]).astype(np.uint8)
    planes = to_planes(codes)
    assert (from_planes(planes) == codes).all()
    assert (np.asarray(jax.jit(from_planes)(planes)) == codes).all()


def test_planes_hold_what_the_packed_form_holds() -> None:
    shape = (7, 256)
    packed = PackedInt(8, 128, "F16")
    arrays = packed.encode(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    planes = Int8Planes.from_packed(arrays)
    Int8Planes().check(planes, shape)
    assert (Int8Planes().decode(planes, shape) == packed.decode(arrays, shape)).all()
    half = Int8Planes().slice(planes, shape, 1, 128, 256)
    assert (Int8Planes().decode(half, (7, 128)) == packed.decode(arrays, shape)[:, 128:]).all()
    with pytest.raises(ValueError, match="int8_planes_g128: cannot be cut at 64 along K; cuts are multiples of 128"):
        Int8Planes().slice(planes, shape, 1, 64, 128)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.01, 1.0, 30.0]))
def test_F_9_the_bound_never_loses_the_argmax(seed: int, size: float) -> None:
    """Scales of both signs; rows that are nearly equal; the exact maximum is always a candidate, ties included."""
    rng = np.random.default_rng(seed)
    shape = (64, 256)
    codes = rng.integers(0, 256, shape, dtype=np.uint8)
    codes[40:] = codes[:24]  # ties
    codes[30:40] = codes[0] ^ rng.integers(0, 4, (10, 256), dtype=np.uint8)  # they differ in the bits not read
    scale = (rng.standard_normal((64, 2)) * size).astype(np.float16)
    scale[30:] = scale[0]
    arrays = {"planes": to_planes(codes), "scale": scale}
    x = rng.standard_normal(256)
    logits = Int8Planes().decode64(arrays, shape) @ x
    candidates = argmax_candidates(x, arrays, shape)
    assert candidates[logits == logits.max()].all()


def test_F_9_the_bound_rules_out_most_rows() -> None:
    rng = np.random.default_rng(0)
    shape = (512, 1024)
    arrays = Int8Planes().encode(rng.standard_normal(shape).astype(np.float32))
    x = Int8Planes().decode64(arrays, shape)[77]
    candidates = argmax_candidates(x, arrays, shape)
    assert candidates[77]
    assert candidates.sum() < 10
