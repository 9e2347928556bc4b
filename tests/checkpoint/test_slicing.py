from __future__ import annotations

import numpy as np
import pytest

from dgpp.checkpoint.slicing import local_format, local_ranges, local_shape, rank_bytes, rank_slice, shared_range
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
    spec = TensorSpec("m", shape, ("a", "b"), leaves=Leaves(axis, NINE), numbers=(0, 1))
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


QKV = (
    Leaves(0, ((0, 16), (0, 16), (16, 32), (16, 32)), partition=False),  # two key heads of four that read them
    Leaves(0, ((32, 48), (32, 48), (48, 64), (48, 64)), partition=False),
    Leaves(0, tuple((64 + a * 8, 64 + b * 8) for a, b in even_ranges(6))),  # six value heads: leaves of 1, 2, 1, 2
)

LOW, HIGH = [*range(16), *range(32, 48)], [*range(16, 32), *range(48, 64)]
PAD = [-1] * 8


@pytest.mark.parametrize(
    ("world", "rows"),
    [
        (2, [[*LOW, *range(64, 72), *PAD, *range(72, 88)], [*HIGH, *range(88, 96), *PAD, *range(96, 112)]]),
        (
            4,
            [
                [*LOW, *range(64, 72), *PAD],
                [*LOW, *range(72, 88)],
                [*HIGH, *range(88, 96), *PAD],
                [*HIGH, *range(96, 112)],
            ],
        ),
    ],
)
def test_a_rank_holds_its_slice_of_every_band(world: int, rows: list[list[int]]) -> None:
    spec = TensorSpec("m", (112, 16), ("channels", "embed"), leaves=QKV, numbers=(0, 2))
    arrays = spec.codec.encode(np.random.default_rng(0).standard_normal((2, 112, 16)).astype(np.float32))
    values = np.pad(spec.codec.decode(arrays, spec.shape), [(0, 0), (0, 1), (0, 0)])  # row -1 is the padding
    shape = local_shape(spec, world)
    for rank, held in enumerate(rows):
        assert shape == (len(held), 16)
        local = spec.codec.decode(rank_slice(spec, arrays, world, rank), shape)
        assert (local == values[:, held]).all()
    assert rank_bytes(spec, world) == 2 * len(rows[0]) * 16 * 2
    with pytest.raises(ValueError, match="m: not cut into leaves"):
        local_ranges(spec, world)


@pytest.mark.parametrize("tag", ["bf16", "bf16_bare", "fp8_block128_bf16", "nvfp4", "mxfp8", "bf12"])
@pytest.mark.parametrize("world", [2, 4])
def test_experts_are_cut_along_their_rows_or_columns(tag: str, world: int) -> None:
    f, d = 160, 1024  # leaves of 40 rows, or of 1024 columns
    both = tuple(Leaves(1, tuple((start + a, start + b) for a, b in even_ranges(f))) for start in (0, f))
    up = TensorSpec("up", (3, 2 * f, d), ("experts", "mlp", "embed"), tag, both, numbers=(1, 3))
    down = TensorSpec("down", (3, 16, 4 * d), ("experts", "embed", "mlp"), tag, Leaves(2, even_ranges(4 * d)))
    rng = np.random.default_rng(0)
    for spec, axis in ((up, -2), (down, -1)):
        lead = (2,) if spec.layers else ()
        arrays = spec.codec.encode(rng.standard_normal((*lead, *spec.shape)).astype(np.float32))
        values = spec.held.decode(arrays, spec.shape)
        size = local_shape(spec, world)[axis]
        for rank in range(world):
            local = rank_slice(spec, arrays, world, rank)
            found = local_format(spec, world).decode(local, local_shape(spec, world))
            if axis == -1:
                held = list(range(rank * size, (rank + 1) * size))
            else:
                half = range(rank * size // 2, (rank + 1) * size // 2)
                held = [*half, *(f + row for row in half)]
            assert (found == np.take(values, held, axis)).all()
