"""Loading packed weights: every array in its place, what is for disk only transformed, what is wrong refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.fixture import random_tensors
from dgpp.checkpoint.load import load_weights
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.safetensors import write
from dgpp.checkpoint.spec import SpecTree, TensorSpec
from dgpp.formats import format_named

SHAPES = {
    "fp8_block128": (130, 200),
    "fp8_block128_chunks4": (256, 128),
    "fp8_block32_e8m0": (64, 64),
    "fp8_channel": (5, 24),
    "nvfp4": (5, 32),
    "nvfp4_divisor": (5, 32),
    "nvfp4_csf": (32, 64),
    "mxfp4_deepseek": (5, 64),
    "mxfp4_blocks": (3, 5, 64),
    "mxfp8": (5, 64),
    "int4_g64": (5, 128),
    "gptq_int4_g128": (16, 256),
    "gptq_int4_g128_asym_v1": (16, 256),
    "mixed346_3": (5, 128),
    "exl3_2_mcg": (128, 128),
}


def checkpoint_of(directory: Path, tree: SpecTree, changes: dict[str, np.ndarray | None] | None = None) -> Checkpoint:
    tensors = random_tensors(tree, 0)
    for name, array in (changes or {}).items():
        tag, _ = tensors.pop(name)
        if array is not None:
            tensors[name] = (tag, array)
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps({}))
    write(directory / "model.safetensors", tensors, {})
    return Checkpoint.open(directory)


def tree_of(tag: str, layers: int = 2) -> SpecTree:
    axes = ("expert",) * (len(SHAPES[tag]) - 2) + ("rows", "columns")
    return {"w": TensorSpec("m.{layer}.proj", SHAPES[tag], axes, tag, numbers=tuple(range(layers)))}


@pytest.mark.parametrize("tag", SHAPES)
def test_a_loaded_weight_means_what_the_files_say(tmp_path: Path, tag: str) -> None:
    tree, shape = tree_of(tag), SHAPES[tag]
    checkpoint = checkpoint_of(tmp_path, tree)
    seen: list[tuple[int, int]] = []
    weight = load_weights(tree, checkpoint, progress=lambda done, total: seen.append((done, total)))["w"]
    codec = format_named(tag)
    assert weight.format == codec.loads_as
    held = format_named(weight.format)
    held.check(weight.arrays, shape)
    values = held.decode(weight.arrays, shape)
    for layer in range(2):
        stored = {
            field: checkpoint.read(packed.tensor(f"m.{layer}.proj"))
            for field, packed in codec.arrays(shape).items()
            if packed.tensor(f"m.{layer}.proj") in checkpoint.tensors
        }
        assert (codec.decode(stored, shape) == values[layer]).all()
    assert seen[-1] == (checkpoint.nbytes, checkpoint.nbytes)


def test_W5_ambiguous_zero_points_name_the_module(tmp_path: Path) -> None:
    tree = tree_of("gptq_int4_g128")
    wrong = np.array([[0x77777777, 0x78777777]] * 2, np.uint32).view(np.int32)
    checkpoint = checkpoint_of(tmp_path, tree, {"m.1.proj.qzeros": wrong})
    with pytest.raises(CheckpointError, match=r"module m\.1\.proj: gptq_int4_g128: qzeros .* ambiguous"):
        load_weights(tree, checkpoint)


@pytest.mark.parametrize("value", [0.0, np.nan])
def test_W2_a_broken_global_scale_names_the_module(tmp_path: Path, value: float) -> None:
    tree = tree_of("nvfp4")
    checkpoint = checkpoint_of(tmp_path, tree, {"m.0.proj.weight_scale_2": np.array(value, np.float32)})
    with pytest.raises(CheckpointError, match=r"module m\.0\.proj: nvfp4: 'weight_scale_2' .* finite and positive"):
        load_weights(tree, checkpoint)


def test_W2_a_missing_global_scale_is_refused_and_an_optional_one_is_not_missed(tmp_path: Path) -> None:
    tree = tree_of("nvfp4")
    checkpoint = checkpoint_of(tmp_path, tree, {"m.1.proj.weight_scale_2": None})
    with pytest.raises(CheckpointError, match=r"tensor 'm\.1\.proj\.weight_scale_2' of module w\[1\] is missing"):
        load_weights(tree, checkpoint)
    assert not any("input_scale" in name for name in checkpoint.tensors)


def test_a_weight_shape_that_contradicts_the_model_is_refused(tmp_path: Path) -> None:
    tree = tree_of("int4_g64")
    checkpoint = checkpoint_of(tmp_path, tree, {"m.0.proj.weight_shape": np.array([5, 64])})
    with pytest.raises(
        CheckpointError, match=r"module m\.0\.proj: int4_g64: weight_shape is \[5, 64\], not \[5, 128\]"
    ):
        load_weights(tree, checkpoint)
