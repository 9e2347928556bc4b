from __future__ import annotations

import numpy as np
import pytest

from dgpp.formats import BF16, format_named
from dgpp.formats.minifloat import BFLOAT16


def test_bf16_holds_every_pattern_and_any_rank() -> None:
    every = np.arange(65536, dtype=np.uint16).view(BFLOAT16)
    values = BF16().decode({"values": every}, every.shape)
    back = BF16().encode(values)["values"]
    numbers = ~np.isnan(values)
    assert (back.view(np.uint16) == every.view(np.uint16))[numbers].all()
    assert BF16().arrays((3, 1, 4))["values"].shape == (3, 1, 4)
    part = BF16().slice({"values": every.reshape(4, 4, 4096)}, (4, 4096), 0, 1, 3)  # stacked over 4 layers
    assert part["values"].shape == (4, 2, 4096)


def test_bf16_rounds_to_nearest_even() -> None:
    values = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, -(1 + 2.0**-8), 3.4e38], np.float32)
    assert BF16().encode(values)["values"].astype(np.float32).tolist()[:3] == [1, 1 + 2.0**-6, -1]


def test_float32_tensors_are_kept_but_have_no_exact_operand() -> None:
    f32 = format_named("f32_bare")
    assert f32.exact_in == ()
    assert f32.arrays((7,))["values"].tensor("layers.0.sinks") == "layers.0.sinks"
    assert format_named("f16").arrays((2, 3))["values"].tensor("m") == "m.weight"
    values = np.array([np.pi, np.nan], np.float32)
    assert np.array_equal(f32.decode(f32.encode(values), (2,)), values, equal_nan=True)


@pytest.mark.parametrize("tag", ["bf16", "f16", "f32"])
def test_dense_pads_with_zeros_and_concatenates(tag: str) -> None:
    format = format_named(tag)
    arrays = format.encode(np.ones((2, 3), np.float32))
    padded = format.pad(arrays, (2, 3), 1, 5)
    assert format.decode(padded, (2, 5)).tolist() == [[1, 1, 1, 0, 0]] * 2
    both = format.concatenate([padded, padded], [(2, 5)] * 2, 0)
    assert format.decode(both, (4, 5)).sum() == 12
