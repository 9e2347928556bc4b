from __future__ import annotations

import numpy as np
import pytest

from dgpp.checkpoint.slicing import local_ranges, local_shape, rank_bytes, rank_slice, shared_range
from dgpp.checkpoint.spec import Leaves, TensorSpec, even_ranges

NINE = tuple((a * 16, b * 16) for a, b in even_ranges(9))  # nine heads of 16: leaves of 2, 2, 2 and 3 heads


def test_E_2_6_the_floor_rule() -> None:
    assert even_ranges(154880) == ((0, 38720), (38720, 77440), (77440, 116160), (116160, 154880))
    assert [b - a for a, b in even_ranges(10)] == [2, 3, 2, 3]
    assert even_ranges(2) == ((0, 0), (0, 1), (1, 1), (1, 2))


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("axis", [0, 1])
def test_slices_put_together_without_padding_are_the_tensor(world: int, axis: int) -> None:
    shape = (144, 8) if axis == 0 else (8, 144)
    spec = TensorSpec("m", shape, ("a", "b"), leaves=Leaves(axis, NINE), layers=2)
    values = np.random.default_rng(0).standard_normal((2, *shape)).astype(np.float32)
    arrays = spec.codec.encode(values)
    size = 48
    assert local_shape(spec, world)[axis] == size * 4 // world
    parts = []
    for rank in range(world):
        local = spec.codec.decode(rank_slice(spec, arrays, world, rank), local_shape(spec, world))
        for place, (start, stop) in enumerate(local_ranges(spec, world)):
            leaf = NINE[rank * 4 // world + place]
            held = leaf[1] - leaf[0]
            piece = np.take(local, range(start, stop), axis + 1)
            assert (np.take(piece, range(held, size), axis + 1) == 0).all()
            parts.append(np.take(piece, range(held), axis + 1))
    assert (np.concatenate(parts, axis + 1) == spec.codec.decode(arrays, spec.shape)).all()


def test_a_shared_range_covers_the_heads_of_all_leaves_of_a_rank() -> None:
    kv = Leaves(0, ((0, 16), (0, 32), (16, 32), (32, 48)), partition=False)
    assert [shared_range(kv, 2, r) for r in range(2)] == [(0, 32), (16, 48)]
    assert [shared_range(kv, 4, r) for r in range(4)] == [(0, 16), (0, 32), (16, 32), (32, 48)]
    spec = TensorSpec("m", (48, 4), ("a", "b"), leaves=kv)
    arrays = spec.codec.encode(np.arange(192, dtype=np.float32).reshape(48, 4))
    held = spec.codec.decode(rank_slice(spec, arrays, 4, 2), (32, 4))
    assert held.shape == (32, 4)
    assert (held[:16] == spec.codec.decode(arrays, spec.shape)[16:32]).all()
    assert (held[16:] == 0).all()


def test_world_1_holds_the_tensor_as_published() -> None:
    spec = TensorSpec("m", (144, 8), ("a", "b"), leaves=Leaves(0, NINE))
    arrays = spec.codec.encode(np.ones((144, 8), np.float32))
    assert rank_slice(spec, arrays, 1, 0)["values"] is arrays["values"]
    assert local_ranges(spec, 1) == NINE
    assert rank_bytes(spec, 1) == spec.nbytes == 144 * 8 * 2


def test_ranges_of_a_tensor_without_leaves_are_refused() -> None:
    with pytest.raises(ValueError, match="m: not cut into leaves"):
        local_ranges(TensorSpec("m", (4, 4), ("a", "b")), 2)
