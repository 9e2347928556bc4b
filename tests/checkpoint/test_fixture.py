"""Fixtures: complete, deterministic checkpoints in the layout of a release."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.fixture import gaussian, random_tensors, with_tokenizer, write_fixture
from dgpp.checkpoint.inventory import take_inventory
from dgpp.checkpoint.load import load_weights
from dgpp.checkpoint.quantization import resolve_tree
from dgpp.checkpoint.reader import INDEX, Checkpoint
from dgpp.checkpoint.spec import SpecTree, TensorSpec, flatten
from dgpp.engine.levers import parted
from dgpp.models import FAMILIES, family_of

ALL = [(family.name, release) for family in FAMILIES.values() for release in family.releases]


@pytest.mark.parametrize(("family", "release"), ALL)
def test_a_fixture_is_a_complete_checkpoint_of_its_release(tmp_path: Path, family: str, release: str) -> None:
    layout = FAMILIES[family].releases[release]
    checkpoint = Checkpoint.open(write_fixture(FAMILIES[family], release, tmp_path / "new"))
    assert with_tokenizer(layout.config) == checkpoint.config
    assert family_of(checkpoint.config).name == family
    assert checkpoint.generation_config["eos_token_id"] == [2, 0]
    assert len(checkpoint.shards) == layout.shards
    assert (checkpoint.directory / INDEX).is_file() == (layout.shards > 1)
    for name, content in layout.files.items():
        assert json.loads((checkpoint.directory / name).read_text()) == content
    tree = FAMILIES[family].tree(FAMILIES[family].config(checkpoint.config))
    if layout.without:
        left = [path for path, spec in flatten(tree) if re.search(layout.without, spec.source)]
        assert left
        tree, _ = parted(tree, left)
    tree = resolve_tree(tree, checkpoint)
    inventory = take_inventory(tree, checkpoint)
    assert inventory.used
    assert not inventory.unused
    assert not inventory.unindexed
    assert load_weights(tree, checkpoint).keys() == tree.keys()
    tokenizer = Tokenizer.from_file(str(checkpoint.tokenizer_files["tokenizer.json"]))
    assert tokenizer.get_vocab_size() <= checkpoint.config.get("text_config", checkpoint.config)["vocab_size"]


def test_the_index_lists_every_tensor_and_the_total(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_fixture(FAMILIES["llama"], "tiny", tmp_path / "new"))
    index = json.loads((checkpoint.directory / INDEX).read_text())
    assert index["weight_map"].keys() == checkpoint.tensors.keys()
    assert index["metadata"]["total_size"] == checkpoint.nbytes
    sizes = [(checkpoint.directory / shard).stat().st_size for shard in checkpoint.shards]
    assert max(sizes) < 0.8 * sum(sizes)


def test_equal_seeds_make_equal_bytes_and_others_do_not(tmp_path: Path) -> None:
    def weights(name: str, seed: int) -> bytes:
        directory = write_fixture(FAMILIES["llama"], "tiny-tied", tmp_path / name, seed)
        return (directory / "model.safetensors").read_bytes()

    assert weights("a", 1) == weights("b", 1) != weights("c", 2)


def test_values_are_scaled_for_sane_activations(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_fixture(FAMILIES["llama"], "tiny", tmp_path / "new"))
    down = checkpoint.read("model.layers.0.mlp.down_proj.weight").astype(np.float64)
    assert abs(down.mean()) < 0.1 * down.std()
    assert down.std() == pytest.approx(down.shape[1] ** -0.5, rel=0.05)
    norm = checkpoint.read("model.norm.weight").astype(np.float64)
    assert norm.mean() == pytest.approx(1, abs=0.1)
    assert 0.05 < norm.std() < 0.2


def test_gaussian_values_are_pinned_and_nearly_normal() -> None:
    pinned = [-1.7569204948144606, -0.6948712133468989, 0.8088859103794]
    assert gaussian((3,), 0, "model.norm").tolist() == pinned
    values = gaussian((200, 500), 1, "w")
    assert values.mean() == pytest.approx(0, abs=0.02)
    assert values.std() == pytest.approx(1, abs=0.02)
    assert np.mean(np.abs(values) < 1) == pytest.approx(0.683, abs=0.03)
    assert not np.array_equal(values, gaussian((200, 500), 1, "v"))


def test_an_unknown_release_and_a_directory_in_use(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"family llama has no release 'huge'; it has tiny, "):
        write_fixture(FAMILIES["llama"], "huge", tmp_path / "new")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(CheckpointError, match="is not empty"):
        write_fixture(FAMILIES["llama"], "tiny", tmp_path)


def test_vectors_lie_around_the_centre_of_their_spec_and_experts_differ() -> None:
    tree: SpecTree = {
        "norm": TensorSpec("norm", (500,), ("embed",), centre=0),
        "dt_bias": TensorSpec("dt_bias", (500,), ("heads",), "f32_bare", centre=-2),
        "up": TensorSpec("experts.{expert}.up", (2, 32, 64), ("experts", "mlp", "embed")),
    }
    tensors = {name: np.asarray(array, np.float64) for name, (_, array) in random_tensors(tree, 0).items()}
    assert tensors["norm.weight"].mean() == pytest.approx(0, abs=0.02)
    assert tensors["dt_bias"].mean() == pytest.approx(-2, abs=0.02)
    one, other = (tensors[f"experts.{expert}.up.weight"] for expert in (0, 1))
    assert one.std() == pytest.approx(1 / 8, rel=0.1)
    assert (one != other).any()
