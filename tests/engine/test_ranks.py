"""What each rank of a world holds of weights that are held in another form than they are stored in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dgpp.checkpoint.fixture import write_fixture
from dgpp.checkpoint.load import load_weights
from dgpp.checkpoint.slicing import local_format, local_shape, rank_slice
from dgpp.checkpoint.spec import Leaves, SpecTree, TensorSpec, even_ranges, flatten
from dgpp.engine.open import open_model
from dgpp.engine.options import ModelOptions
from dgpp.engine.ranks import rank_specs, rank_weights
from dgpp.engine.settings import CoreSettings
from dgpp.formats import format_named
from dgpp.kernels import select
from dgpp.lab.model import Model
from dgpp.models import FAMILIES
from tests.checkpoint.test_load_formats import checkpoint_of

UP = TensorSpec("l.{layer}.up", (64, 1024), ("mlp", "embed"), leaves=Leaves(0, even_ranges(64)), numbers=(0, 2))
TREE: SpecTree = {
    "up": UP,
    "bands": replace(
        UP, source="l.{layer}.bands", leaves=(Leaves(0, even_ranges(24)), Leaves(0, even_ranges(40, start=24)))
    ),
    "down": TensorSpec("down", (32, 4096), ("embed", "mlp"), leaves=Leaves(1, even_ranges(4096))),
    "whole": TensorSpec("whole", (16, 1024), ("embed", "mlp")),
    "embed": TensorSpec("embed", (48, 1024), ("vocab", "embed")),
}
TIED = {"head": ("embed", TensorSpec("embed", (48, 1024), ("vocab", "embed"), leaves=Leaves(0, even_ranges(48))))}


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("resident", ["bf12", "fp8_block128"])
def test_ranks_hold_slices_of_the_resident_form(tmp_path: Path, resident: str, world: int) -> None:
    checkpoint = checkpoint_of(tmp_path, TREE)
    held: SpecTree = {path: replace(spec, resident=resident) for path, spec in flatten(TREE)}
    loaded = load_weights(held, checkpoint)
    specs, sources = rank_specs(held, TIED, world)
    assert specs["head"].resident == resident
    placed = rank_weights(held, TIED, loaded, world)
    codec = format_named(resident)
    for path, spec in specs.items():
        weight = placed[path]
        assert weight.format == local_format(spec, world).name
        assert weight.shape == local_shape(spec, world)
        values = codec.decode(loaded[sources[path]].arrays, spec.shape)
        plain = replace(spec, resident="", format="f32")
        for rank in range(world):
            expected = rank_slice(plain, {"values": values}, world, rank)["values"]
            arrays = {name: array[rank] if ranked else array for name, (array, ranked) in weight.arrays.items()}
            found = format_named(weight.format).decode(arrays, weight.shape)
            assert found.tobytes() == np.ascontiguousarray(expected).tobytes(), (path, rank)


def logits(directory: str, world: int, **options: str) -> bytes:
    settings = CoreSettings(slots=1, pool_tokens=16, page_tokens=16, row_families=(16,), world=world)
    opened = open_model(directory, settings, select("reference"), options=ModelOptions(**options))
    held = {spec.resident for _, spec in flatten(opened.tree)}
    assert ("bf12" in held) == ("bf16_weights" in options)
    return Model.of(opened).forward((5, 9, 33, 7)).logits.tobytes()


@pytest.mark.slow
def test_twelve_bits_give_the_logits_of_sixteen_in_every_world(tmp_path: Path) -> None:
    directory = wide_llama(tmp_path / "wide")
    expected = logits(directory, 1)
    for world in (1, 2, 4):
        assert logits(directory, world, bf16_weights="bf12") == expected


def wide_llama(directory: Path) -> str:
    """A llama of one layer, wide enough for 12 bits."""
    family = FAMILIES["llama"]
    tiny = family.releases["tiny"]
    config = {**tiny.config, "hidden_size": 1024, "head_dim": 16, "num_hidden_layers": 1, "vocab_size": 2048}
    releases = {"wide": replace(tiny, config=config, shards=1)}
    return str(write_fixture(replace(family, releases=releases), "wide", directory))
