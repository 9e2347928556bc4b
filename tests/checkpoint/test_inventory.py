"""A tree of specs against a checkpoint's tensors."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.fixture import random_tensors
from dgpp.checkpoint.inventory import take_inventory
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.safetensors import write
from dgpp.checkpoint.spec import SpecTree, TensorSpec, flatten

TREE: SpecTree = {
    "embed": TensorSpec("model.embed_tokens", (8, 4), ("vocab", "embed")),
    "layers": {
        "norm": TensorSpec("model.layers.{layer}.norm", (4,), ("embed",), numbers=(0, 1)),
        "q_proj": TensorSpec("model.layers.{layer}.attn.q_proj", (6, 4), ("heads", "embed"), numbers=(0, 1)),
    },
}


def opened(directory: Path, change: dict[str, tuple[str, np.ndarray] | None] | None = None) -> Checkpoint:
    """A checkpoint of TREE, with some tensors replaced, added or (None) left out."""
    tensors = random_tensors(TREE, 0) | (change or {})
    write(directory / "model.safetensors", {name: entry for name, entry in tensors.items() if entry is not None})
    (directory / "config.json").write_text("{}")
    return Checkpoint.open(directory)


def bfloat16(*shape: int) -> tuple[str, np.ndarray]:
    return "BF16", np.zeros(shape, ml_dtypes.bfloat16)


def test_every_tensor_has_a_row_in_the_order_of_the_tree(tmp_path: Path) -> None:
    found = take_inventory(TREE, opened(tmp_path))
    assert [(row.path, row.layer, row.tensor) for row in found.used] == [
        ("embed", None, "model.embed_tokens.weight"),
        ("layers.norm", 0, "model.layers.0.norm.weight"),
        ("layers.norm", 1, "model.layers.1.norm.weight"),
        ("layers.q_proj", 0, "model.layers.0.attn.q_proj.weight"),
        ("layers.q_proj", 1, "model.layers.1.attn.q_proj.weight"),
    ]
    row = found.used[-1]
    assert (row.shape, row.format, row.nbytes, row.shard) == ((6, 4), "bf16", 48, "model.safetensors")
    assert found.used_bytes == sum(spec.nbytes for _, spec in flatten(TREE)) == 2 * (32 + 8 + 48)
    assert found.unused == ()


def test_W7_unused_tensors_are_reported(tmp_path: Path) -> None:
    extra = {"z.rotary.inv_freq": ("F32", np.zeros(3, np.float32)), "mtp.w.weight": bfloat16(2)}
    found = take_inventory(TREE, opened(tmp_path, extra))
    assert [(row.tensor, row.format, row.nbytes) for row in found.unused] == [
        ("mtp.w.weight", "BF16", 4),
        ("z.rotary.inv_freq", "F32", 12),
    ]
    assert found.unused_bytes == 16


def test_W2_a_missing_tensor_names_module_and_tensor_and_what_is_there(tmp_path: Path) -> None:
    name = "model.layers.1.attn.q_proj.weight"
    with pytest.raises(CheckpointError, match=rf"{tmp_path}: tensor '{name}' of module layers.q_proj\[1\] is missing$"):
        take_inventory(TREE, opened(tmp_path, {name: None}))
    packed = {name: None, name + "_packed": ("U8", np.zeros(3, np.uint8)), name + "_scale": bfloat16(1)}
    with pytest.raises(CheckpointError, match=r"is missing; the module has only .weight_packed, .weight_scale$"):
        take_inventory(TREE, opened(tmp_path, packed))


def test_a_wrong_shape_names_both(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"module embed has shape \[9, 4\] .* config.json makes it \[8, 4\]"):
        take_inventory(TREE, opened(tmp_path, {"model.embed_tokens.weight": bfloat16(9, 4)}))


def test_a_wrong_dtype_names_both(tmp_path: Path) -> None:
    change = {"model.layers.0.norm.weight": ("F32", np.zeros(4, np.float32))}
    with pytest.raises(CheckpointError, match=r"module layers.norm\[0\] is stored as F32 .* needs BF16"):
        take_inventory(TREE, opened(tmp_path, change))


def test_many_problems_are_counted(tmp_path: Path) -> None:
    tree: SpecTree = {"w": TensorSpec("w.{layer}", (2,), ("embed",), numbers=tuple(range(9)))}
    with pytest.raises(CheckpointError, match=r"'w\.4\.weight' of module w\[4\] is missing; and 4 more$"):
        take_inventory(tree, opened(tmp_path))
