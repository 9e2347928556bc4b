"""Loading weights: the right bytes in the right place, aligned, without a second copy."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from dgpp.checkpoint import load
from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.fixture import write_weights
from dgpp.checkpoint.load import aligned_empty, load_weights
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import SpecTree, TensorSpec, flatten
from dgpp.formats import Weight

TREE: SpecTree = {
    "embed": TensorSpec("embed", (33, 7), ("vocab", "embed")),
    "layers": {
        "norm": TensorSpec("layers.{layer}.norm", (7,), ("embed",), numbers=(0, 1, 2)),
        "attn": {"q_proj": TensorSpec("layers.{layer}.q_proj", (5, 7), ("heads", "embed"), numbers=(0, 1, 2))},
    },
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    write_weights(TREE, tmp_path, seed=3, shards=2)
    (tmp_path / "config.json").write_text("{}")
    return Checkpoint.open(tmp_path)


def test_every_weight_is_the_files_tensor_stacked_over_layers(checkpoint: Checkpoint) -> None:
    weights = load_weights(TREE, checkpoint)
    assert weights.keys() == TREE.keys()
    q_proj = weights["layers"]["attn"]["q_proj"]
    assert isinstance(q_proj, Weight)
    assert (q_proj.format, q_proj.shape) == ("bf16", (5, 7))
    assert q_proj.arrays["values"].shape == (3, 5, 7)
    assert weights["layers"]["norm"].shape == (7,)
    assert weights["embed"].arrays["values"].shape == (33, 7)
    for layer in range(3):
        assert (q_proj.arrays["values"][layer] == checkpoint.read(f"layers.{layer}.q_proj.weight")).all()
    assert (weights["embed"].arrays["values"] == checkpoint.read("embed.weight")).all()


def test_arrays_are_aligned_contiguous_and_native(checkpoint: Checkpoint) -> None:
    weights = load_weights(TREE, checkpoint)
    arrays = [weights["embed"], weights["layers"]["norm"], weights["layers"]["attn"]["q_proj"]]
    for array in (weight.arrays["values"] for weight in arrays):
        assert array.ctypes.data % 64 == 0
        assert array.flags.c_contiguous
        assert array.dtype == ml_dtypes.bfloat16


def test_aligned_empty_of_any_size() -> None:
    for size in (1, 63, 64, 65, 4096):
        assert aligned_empty((size,), np.dtype(np.uint8)).ctypes.data % 64 == 0
    assert aligned_empty((), np.dtype(np.float32)).shape == ()


def test_progress_ends_at_the_total(checkpoint: Checkpoint) -> None:
    calls: list[tuple[int, int]] = []
    load_weights(TREE, checkpoint, progress=lambda done, total: calls.append((done, total)))
    total = sum(spec.nbytes for _, spec in flatten(TREE))
    assert len(calls) == 7
    assert calls[-1] == (total, total)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_K2_a_subtree_and_single_layers_cost_only_their_own_memory(tmp_path: Path) -> None:
    big: SpecTree = {"w": TensorSpec("w.{layer}", (512, 512), ("heads", "embed"), numbers=tuple(range(8)))}
    write_weights(big, tmp_path, seed=0)
    (tmp_path / "config.json").write_text("{}")
    checkpoint = Checkpoint.open(tmp_path)
    whole, one = 8 * 2**19, 2**19

    def peak(layers: tuple[int, ...] | None) -> tuple[int, np.ndarray]:
        tracemalloc.start()
        array = load_weights(big, checkpoint, layers=layers)["w"].arrays["values"]
        measured = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return measured, array

    used, array = peak(None)
    assert whole <= used < 1.02 * whole
    used, single = peak((5,))
    assert one <= used < 1.1 * one
    assert single.shape == (1, 512, 512)
    assert (single[0] == array[5]).all()


def test_K2_a_part_of_the_tree_needs_only_its_own_tensors(checkpoint: Checkpoint) -> None:
    part: SpecTree = {"norm": TREE["layers"]["norm"]}  # type: ignore[index]
    assert load_weights(part, checkpoint).keys() == {"norm"}
    with pytest.raises(CheckpointError, match="norm has layers 0 to 2; there is no layer 3"):
        load_weights(part, checkpoint, layers=(3,))


def test_K2_M1_weights_larger_than_the_memory_are_refused_with_numbers(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "available_memory", lambda: 100)
    monkeypatch.setattr(load, "aligned_empty", lambda *_: pytest.fail("allocated"))
    with pytest.raises(CheckpointError, match=r"weights need 0\.00 GiB and 0\.00 GiB of memory are available"):
        load_weights(TREE, checkpoint)


def test_available_memory_is_a_plausible_number() -> None:
    available = load.available_memory()
    assert available is None or 2**20 < available < 2**50


def test_a_missing_tensor_is_refused_before_anything_is_allocated(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "aligned_empty", lambda *_: pytest.fail("allocated"))
    tree: SpecTree = {**TREE, "head": TensorSpec("lm_head", (33, 7), ("vocab", "embed"))}
    with pytest.raises(CheckpointError, match=r"'lm_head\.weight' of module head is missing"):
        load_weights(tree, checkpoint)


def test_a_shard_that_shrank_after_opening(checkpoint: Checkpoint) -> None:
    shard = checkpoint.directory / checkpoint.shards[-1]
    shard.write_bytes(shard.read_bytes()[:-2])
    with pytest.raises(CheckpointError, match=f"{shard.name}: ends inside tensor"):
        load_weights(TREE, checkpoint)
