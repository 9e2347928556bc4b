from __future__ import annotations

import numpy as np
import pytest

from dgpp.formats import format_named, reference
from dgpp.formats.fp8_block import FP8Block
from dgpp.formats.fp8_chunked import FP8Chunked
from dgpp.formats.minifloat import BFLOAT16

CHUNKED = FP8Chunked()


def test_F_2_the_grid_of_scales_restarts_in_every_chunk() -> None:
    """4 x 3392 rows have 108 rows of scales, 4 x 3712 have 116; one 128-row grid would have 106 and 116."""
    assert CHUNKED.arrays((13568, 4096))["scale"].shape == (108, 32)
    assert CHUNKED.arrays((14848, 4096))["scale"].shape == (116, 32)
    assert FP8Block().arrays((13568, 4096))["scale"].shape == (106, 32)


def test_a_chunked_weight_is_four_matrices_and_loads_as_one() -> None:
    shape = (4 * 192, 200)
    rng = np.random.default_rng(0)
    values = (rng.standard_normal(shape) * np.exp2(rng.integers(-4, 4, (shape[0], 1)))).astype(np.float32)
    arrays = CHUNKED.encode(values)
    CHUNKED.check(arrays, shape)
    assert arrays["scale"].shape == (8, 2)
    decoded = CHUNKED.decode(arrays, shape)
    for chunk in range(4):
        rows = slice(192 * chunk, 192 * (chunk + 1))
        alone = {"codes": arrays["codes"][rows], "scale": arrays["scale"][2 * chunk : 2 * chunk + 2]}
        assert (FP8Block().decode(alone, (192, 200)) == decoded[rows]).all()
    held = format_named(CHUNKED.loads_as)
    loaded = CHUNKED.load(arrays, shape)
    held.check(loaded, shape)
    assert (held.decode(loaded, shape) == decoded).all()
    x = rng.standard_normal((2, 200)).astype(BFLOAT16)
    y = reference.linear(x, arrays, shape, CHUNKED)
    assert (y == reference.linear(x, loaded, shape, held)).all()
    third = held.slice(loaded, shape, 0, 384, 576)
    assert (held.decode(third, (192, 200)) == decoded[384:576]).all()


def test_rows_in_chunks_are_not_cut_and_odd_chunks_are_refused() -> None:
    shape = (4 * 64, 128)
    arrays = CHUNKED.encode(np.ones(shape, np.float32))
    with pytest.raises(
        ValueError, match="fp8_block128_chunks4: cannot be cut along N in chunks; load it as fp8_block64"
    ):
        CHUNKED.slice(arrays, shape, 0, 64, 128)
    with pytest.raises(ValueError, match="fp8_block128_chunks4: cannot be cut along N in chunks"):
        CHUNKED.pad(arrays, shape, 0, 512)
    with pytest.raises(ValueError, match="N = 132 is not 4 chunks of a multiple of 64 rows"):
        CHUNKED.arrays((132, 128))
