from __future__ import annotations

import jax
import numpy as np
import pytest

from dgpp.formats import Weight, format_named
from dgpp.kernels import Kernels, select
from tests.kernels.same import assert_same_bits

FORMATS = ("bf16", "f16", "f32", "fp8_tensor", "fp8_tensor_f32", "nvfp4", "nvfp4_divisor", "mxfp8")
IDS = np.array([[0, 36, 7], [7, 1, 35]], np.int32)


@pytest.fixture(params=["reference"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return select(request.param)


def table(name: str, layers: int, k: int = 64) -> tuple[Weight, np.ndarray]:
    """A table of 37 rows in a format, as the last of `layers` (0: not stacked), and its decoded values."""
    values = np.random.default_rng(0).standard_normal((37, k)).astype(np.float32) * 3
    codec = format_named(name)
    arrays = codec.load(codec.encode(values), values.shape)
    if layers:
        arrays = {field: np.stack([np.zeros_like(x)] * (layers - 1) + [x]) for field, x in arrays.items()}
    one = {field: x[-1] if layers else x for field, x in arrays.items()}
    return Weight(arrays, codec.loads_as, values.shape), codec.decode(one, values.shape)


@pytest.mark.parametrize("layers", [0, 2])
@pytest.mark.parametrize("name", FORMATS)
def test_rows_are_those_of_the_formats_decode(kernels: Kernels, name: str, layers: int) -> None:
    w, values = table(name, layers)
    found = jax.jit(kernels.gather_rows)(w, np.int32(max(0, layers - 1)), IDS)
    assert_same_bits(found, values[IDS].astype(np.float32))


def test_numbers_of_rows_that_are_not_in_the_table_are_clamped(kernels: Kernels) -> None:
    w, values = table("fp8_tensor", 0)
    found = jax.jit(kernels.gather_rows)(w, np.int32(0), np.array([-1, 37, -(2**31), 2**31 - 1], np.int32))
    assert_same_bits(found, values[[0, 36, 0, 36]].astype(np.float32))


def test_a_format_that_cannot_be_read_by_rows_is_named(kernels: Kernels) -> None:
    codec = format_named("fp8_block128")
    w = Weight(codec.encode(np.ones((256, 128), np.float32)), "fp8_block128", (256, 128))
    with pytest.raises(ValueError, match="'fp8_block128' cannot be read row by row"):
        kernels.gather_rows(w, np.int32(0), IDS)


def test_wrong_arguments_are_named(kernels: Kernels) -> None:
    w, _ = table("bf16", 0)
    with pytest.raises(ValueError, match="ids must be int32, not float32"):
        kernels.gather_rows(w, np.int32(0), IDS.astype(np.float32))
    fused = Weight({"values": np.zeros((2, 4, 8), np.float32)}, "f32", (2, 4, 8))
    with pytest.raises(ValueError, match=r"logical shape \[N, K\]"):
        kernels.gather_rows(fused, np.int32(0), IDS)
