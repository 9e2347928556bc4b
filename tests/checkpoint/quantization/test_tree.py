"""A family's tree in the formats of a checkpoint: split stacks, and formats that cannot be used where they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.fixture import random_tensors
from dgpp.checkpoint.inventory import take_inventory
from dgpp.checkpoint.load import load_weights
from dgpp.checkpoint.quantization import resolve_tree, with_formats
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.safetensors import write
from dgpp.checkpoint.spec import SpecTree, TensorSpec, flatten
from dgpp.formats import format_named, reference
from dgpp.models.runs import layer_runs, weights_of_layer
from tests.checkpoint.quantization.support import checkpoint_of

TAGS = ("nvfp4", "nvfp4", "bf16", "fp8_channel", "nvfp4")
BARE: SpecTree = {
    "layers": {
        "norm": TensorSpec("layers.{layer}.norm", (128,), ("embed",), numbers=tuple(range(5))),
        "mlp": {"up": TensorSpec("layers.{layer}.up", (128, 128), ("mlp", "embed"), numbers=tuple(range(5)))},
        "bias": TensorSpec("layers.{layer}.gate.bias", (4,), ("expert",), "f32_bare", numbers=tuple(range(5))),
    }
}


def stored() -> SpecTree:
    return with_formats(BARE, lambda module: TAGS[int(module.split(".")[1])] if module.endswith("up") else None)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    write(tmp_path / "model.safetensors", random_tensors(stored(), 0))
    (tmp_path / "config.json").write_text("{}")
    return Checkpoint.open(tmp_path)


def test_layers_in_several_formats_become_several_stacks(checkpoint: Checkpoint) -> None:
    tree = resolve_tree(BARE, checkpoint)
    assert tree == stored()
    specs = {path: (spec.format, spec.stack[0], spec.layers) for path, spec in flatten(tree)}
    assert specs == {
        "layers.norm": ("bf16", 0, 5),
        "layers.mlp.up.0:2": ("nvfp4", 0, 2),
        "layers.mlp.up.2:3": ("bf16", 2, 1),
        "layers.mlp.up.3:4": ("fp8_channel", 3, 1),
        "layers.mlp.up.4:5": ("nvfp4", 4, 1),
        "layers.bias": ("f32_bare", 0, 5),
    }
    rows = take_inventory(tree, checkpoint).used
    assert {row.tensor for row in rows} == checkpoint.tensors.keys()
    assert [row.layer for row in rows if row.path == "layers.mlp.up.4:5"] == [4, 4, 4]


def test_every_layer_is_found_in_its_stack_and_runs_cover_the_layers(checkpoint: Checkpoint) -> None:
    weights = load_weights(resolve_tree(BARE, checkpoint), checkpoint)["layers"]
    runs = list(layer_runs(weights, 5))
    assert [run for run, _ in runs] == [range(2), range(2, 3), range(3, 4), range(4, 5)]
    for run, found in runs:
        for layer in run:
            up = found["mlp"]["up"]
            assert up is weights_of_layer(weights, layer)["mlp"]["up"]
            assert up.format == TAGS[layer]
            payload = next(iter(format_named(up.format).arrays(up.shape).values())).tensor(f"layers.{layer}.up")
            field = next(iter(up.arrays))
            assert (up.arrays[field][up.place(layer)] == checkpoint.read(payload)).all()
            assert (found["norm"].arrays["values"][layer] == checkpoint.read(f"layers.{layer}.norm.weight")).all()


def test_K2_single_layers_of_split_stacks(checkpoint: Checkpoint) -> None:
    tree = resolve_tree(BARE, checkpoint)
    up = load_weights(tree, checkpoint, layers=(1, 3))["layers"]["mlp"]["up"]
    assert {key: next(iter(part.arrays.values())).shape[0] for key, part in up.items()} == {
        "0:2": 1, "2:3": 0, "3:4": 1, "4:5": 0
    }  # fmt: skip
    assert (up["0:2"].arrays["codes"][0] == checkpoint.read("layers.1.up.weight")).all()
    with pytest.raises(CheckpointError, match="has layers 0 to 4; there is no layer 5"):
        load_weights(tree, checkpoint, layers=(5,))


def refused(checkpoint: Checkpoint, spec: TensorSpec, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        resolve_tree({"w": spec}, checkpoint)


def test_a_format_that_cannot_be_used_there_names_the_module(tmp_path: Path) -> None:
    modules = {"packed": "int4_g64", "wide": "f32", "half": "f16"}
    checkpoint = checkpoint_of(tmp_path, modules)
    axes = ("vocab", "embed")
    refused(
        checkpoint,
        TensorSpec("packed", (256, 256), axes, plain=True),
        "module packed is stored as int4_g64, but its values are used one by one; they can only be bf16, f16, f32",
    )
    refused(checkpoint, TensorSpec("wide", (256, 256), axes), "module wide is stored as f32; no kernel multiplies by")
    plain = TensorSpec("wide", (256, 256), axes, plain=True, linear=False)
    half = TensorSpec("half", (256, 256), axes, plain=True)
    tree = resolve_tree({"wide": plain, "half": half}, checkpoint)
    assert [spec.format for _, spec in flatten(tree)] == ["f32", "f16"]


def test_a_shape_that_its_format_cannot_hold_names_both(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, {"w": "exl3_2_mcg"})
    words = r"module w has shape \[256, 200\], but is stored as exl3_2_mcg: N = 256 and K = 200 must be multiples"
    refused(checkpoint, TensorSpec("w", (256, 200), ("a", "b")), words)


def test_a_module_in_no_known_form_is_refused_only_when_it_is_needed(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, {"w": "bf16"}, changes={"vision.weight": ("F64", np.zeros((2, 2)))})
    assert resolve_tree({"w": TensorSpec("w", (256, 256), ("a", "b"))}, checkpoint)
    refused(checkpoint, TensorSpec("vision", (2, 2), ("a", "b")), "module vision: its weight is stored as F64")


@pytest.mark.parametrize("tag", ["nvfp4", "nvfp4_divisor", "fp8_tensor", "fp8_tensor_f32"])
def test_W1_the_one_scale_of_a_fused_tensor_applies_to_all_of_its_parts(tmp_path: Path, tag: str) -> None:
    checkpoint = checkpoint_of(tmp_path, {"attn.qkv_proj": tag})
    tree = resolve_tree({"qkv": TensorSpec("attn.qkv_proj", (256, 256), ("heads", "embed"))}, checkpoint)
    weight = load_weights(tree, checkpoint)["qkv"]
    codec, x = format_named(weight.format), np.random.default_rng(0).standard_normal((3, 256)).astype(np.float32)
    whole = reference.linear(x, weight.arrays, weight.shape, codec)
    values = codec.decode(weight.arrays, weight.shape)
    for start, stop in ((0, 128), (128, 192), (192, 256)):
        part = codec.slice(weight.arrays, weight.shape, 0, start, stop)
        assert (codec.decode(part, (stop - start, 256)) == values[start:stop]).all()
        alone = reference.linear(x, part, (stop - start, 256), codec)
        assert alone.tobytes() == np.ascontiguousarray(whole[:, start:stop]).tobytes()


def test_W1_gate_and_up_with_different_global_scales_stay_apart(tmp_path: Path) -> None:
    scale = {"up_proj.weight_scale_2": ("F32", np.float32(0.25).reshape(()))}
    checkpoint = checkpoint_of(tmp_path, {"gate_proj": "nvfp4", "up_proj": "nvfp4"}, changes=scale)
    specs = {name: TensorSpec(name, (256, 256), ("mlp", "embed")) for name in ("gate_proj", "up_proj")}
    weights = load_weights(resolve_tree(dict(specs), checkpoint), checkpoint)
    codec = format_named("nvfp4")
    assert weights["up_proj"].arrays["global_scale"] == np.float32(0.25) != weights["gate_proj"].arrays["global_scale"]
    with pytest.raises(ValueError, match="the parts have different 'weight_scale_2'; keep them apart"):
        codec.concatenate([weight.arrays for weight in weights.values()], [(256, 256)] * 2, 0)


def test_W4_equal_weights_in_both_conventions_give_equal_bits(tmp_path: Path) -> None:
    """modelopt multiplies by its global scale, compressed-tensors divides; a power of two has an exact reciprocal."""
    arrays = format_named("nvfp4").encode(np.random.default_rng(1).standard_normal((256, 256)).astype(np.float32))
    tensors = {
        "a.weight": ("U8", arrays["codes"]),
        "a.weight_scale": ("F8_E4M3", arrays["scale"]),
        "a.weight_scale_2": ("F32", np.float32(2**-9).reshape(())),
        "b.weight_packed": ("U8", arrays["codes"]),
        "b.weight_scale": ("F8_E4M3", arrays["scale"]),
        "b.weight_global_scale": ("F32", np.array([2**9], np.float32)),
    }
    checkpoint = checkpoint_of(tmp_path, {}, changes=tensors)
    specs = {name: TensorSpec(name, (256, 256), ("mlp", "embed")) for name in "ab"}
    weights = load_weights(resolve_tree(dict(specs), checkpoint), checkpoint)
    assert [weights[name].format for name in "ab"] == ["nvfp4", "nvfp4_divisor"]
    x = np.random.default_rng(0).standard_normal((3, 256)).astype(np.float32)
    decoded = [format_named(w.format).decode(w.arrays, w.shape).tobytes() for w in weights.values()]
    products = [reference.linear(x, w.arrays, w.shape, format_named(w.format)).tobytes() for w in weights.values()]
    assert decoded[0] == decoded[1]
    assert products[0] == products[1]
