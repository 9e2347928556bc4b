"""What the Qwen releases' configs and tensors say: table parts, experts, the draft layer's number, fused experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.fixture import random_tensors
from dgpp.checkpoint.load import load_weights
from dgpp.checkpoint.quantization import resolve_formats, resolve_tree, with_formats
from dgpp.checkpoint.quantization.dialects import read_scheme
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import Either, SpecTree, TensorSpec, flatten
from dgpp.models.runs import layer_runs, weights_of_layer
from tests.checkpoint.quantization.support import checkpoint_of

PLE = "model.language_model.layers.1.ple.ple_embedding."
TABLE = f"{PLE}ngram_embedding"
FP8: dict[str, Any] = {"quant_method": "fp8", "modules_to_convert": ["ngram_embedding"]}
GPTQ: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}


def table(tag: str) -> TensorSpec:
    return TensorSpec(
        f"{TABLE}.shard_{{part}}", (8, 256), ("ngrams", "embed"), tag, linear=False, parts=4, whole=TABLE
    )  # fmt: skip


def stored(directory: Path, tree: SpecTree, quantization: dict[str, Any] | None = None, **config: Any) -> Checkpoint:
    return checkpoint_of(directory, {}, quantization, changes=random_tensors(tree, 0), **config)


@pytest.mark.parametrize("tag", ["fp8_tensor", "bf16", "nvfp4", "mxfp8"])
def test_the_parts_of_a_table_share_the_scales_of_the_whole(tmp_path: Path, tag: str) -> None:
    tree: SpecTree = {
        "table": table(tag),
        "multipliers": TensorSpec(f"{PLE}layer_multipliers", (2,), ("heads",), "i64_bare", values=(3, 5)),
    }
    named = {"fp8_tensor": FP8, "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}.get(tag)
    checkpoint = stored(tmp_path, tree, named)
    found = resolve_formats(checkpoint)
    assert {found.formats[f"{TABLE}.shard_{part}"] for part in range(4)} == {tag}
    assert found.formats[f"{PLE}layer_multipliers"] == "i64_bare"
    assert TABLE not in found.formats
    assert not found.undecided
    assert bool(found.notes) == (tag in ("mxfp8", "nvfp4"))  # of an embedding a config says nothing
    bare: SpecTree = {"table": table("bf16"), "multipliers": tree["multipliers"]}
    assert resolve_tree(bare, checkpoint) == tree


def test_parts_of_a_table_in_two_formats_are_refused(tmp_path: Path) -> None:
    odd = np.zeros((2, 256), np.float16)
    changes = {**random_tensors({"t": table("bf16")}, 0), f"{TABLE}.shard_2.weight": ("F16", odd)}
    checkpoint = checkpoint_of(tmp_path, {}, changes=changes)
    with pytest.raises(CheckpointError, match=r"shard_2 is stored as f16, but .*shard_0 as bf16; all parts of a table"):
        resolve_tree({"t": table("bf16")}, checkpoint)


def experts(tag: str = "bf16", count: int = 2) -> TensorSpec:
    source = "model.layers.{layer}.mlp.experts.{expert}.up_proj"
    return TensorSpec(source, (count, 256, 256), ("experts", "mlp", "embed"), tag, numbers=(0, 1))


def test_experts_of_a_layer_in_two_formats_are_refused_and_layers_may_differ(tmp_path: Path) -> None:
    def tags(module: str) -> str | None:
        return "nvfp4" if ".layers.1." in module else "fp8_block128"

    tree = with_formats({"up": experts()}, tags)
    assert {path: (spec.format, spec.numbers) for path, spec in flatten(tree)} == {
        "up.0:1": ("fp8_block128", (0,)),
        "up.1:2": ("nvfp4", (1,)),
    }
    assert resolve_tree({"up": experts()}, stored(tmp_path / "layers", tree)) == tree
    lost = random_tensors({"up": experts()}, 0)
    del lost["model.layers.1.mlp.experts.0.up_proj.weight"]
    partial = checkpoint_of(tmp_path / "lost", {}, changes=lost)
    assert resolve_tree({"up": experts()}, partial) == {"up": experts()}  # what is missing, the inventory says
    first = TensorSpec("model.layers.1.mlp.experts.0.up_proj", (256, 256), ("mlp", "embed"), "nvfp4")
    mixed = lost | random_tensors({"first": first}, 0)
    words = (
        r"layers.1.mlp.experts.1.up_proj is stored as bf16, but .*experts.0.up_proj as nvfp4; all experts of a layer"
    )
    with pytest.raises(CheckpointError, match=words):
        resolve_tree({"up": experts()}, checkpoint_of(tmp_path / "mixed", {}, changes=mixed))


def test_a_stack_that_skips_layers_is_split_at_the_next_part(tmp_path: Path) -> None:
    numbers = (1, 3, 5, 7)
    tree: SpecTree = {
        "q": TensorSpec("layers.{layer}.q", (256, 256), ("heads", "embed"), numbers=numbers),
        "norm": TensorSpec("layers.{layer}.norm", (256,), ("embed",), numbers=tuple(range(9))),
    }
    checkpoint = stored(
        tmp_path, with_formats(tree, lambda name: "nvfp4" if name in ("layers.1.q", "layers.3.q") else None)
    )
    resolved = resolve_tree(tree, checkpoint)
    assert {path: spec.numbers for path, spec in flatten(resolved)} == {
        "q.1:5": (1, 3), "q.5:8": (5, 7), "norm": tuple(range(9)),
    }  # fmt: skip
    weights = load_weights(resolved, checkpoint)
    assert [(run, found["q"].format) for run, found in layer_runs(weights, 9)] == [
        (range(5), "nvfp4"),
        (range(5, 9), "bf16"),
    ]
    for layer in numbers:
        q = weights_of_layer(weights, layer)["q"]
        field = next(iter(q.arrays))
        assert (q.arrays[field][q.place(layer)] == checkpoint.read(f"layers.{layer}.q.weight")).all()


FUSED = Either(
    (
        {"up_proj": TensorSpec("mtp.experts.{expert}.up_proj", (2, 4, 8), ("experts", "mlp", "embed"))},
        {"gate_up_proj": TensorSpec("mtp.experts.gate_up_proj", (2, 8, 8), ("experts", "mlp", "embed"), "bf16_bare")},
    )
)


@pytest.mark.parametrize("which", [0, 1])
def test_experts_may_be_stored_one_by_one_or_fused(tmp_path: Path, which: int) -> None:
    tree: SpecTree = {"experts": FUSED}
    checkpoint = stored(tmp_path, FUSED.trees[which])
    resolved = resolve_tree(tree, checkpoint)
    assert resolved == {"experts": FUSED.trees[which]}
    weights = load_weights(resolved, checkpoint)["experts"]
    assert weights.keys() == FUSED.trees[which].keys()


def test_without_a_hint_the_first_is_meant(tmp_path: Path) -> None:
    assert with_formats({"experts": FUSED}, lambda module: None) == {"experts": FUSED.trees[0]}
    fused = with_formats({"experts": FUSED}, lambda name: "f16_bare" if name.endswith("gate_up_proj") else None)
    assert [(path, spec.format) for path, spec in flatten(fused)] == [("experts.gate_up_proj", "f16_bare")]


@pytest.mark.parametrize("nested", [False, True])
def test_a_config_may_number_the_draft_layer_after_the_last(tmp_path: Path, nested: bool) -> None:
    dynamic: dict[str, Any] = {r"-:.*layers\.48\..*": {}, r"+:.*lm_head": {"bits": 8}}
    layers = {"num_hidden_layers": 48}
    config = {"text_config": layers} if nested else layers
    scheme = read_scheme(stored(tmp_path, {}, {**GPTQ, "dynamic": dynamic}, **config))
    assert "bf16" in scheme.formats("mtp.layers.0.mlp.experts.3.up_proj")
    assert scheme.formats("model.language_model.layers.4.mlp.experts.3.up_proj") == ("gptq_int4_g128",)
    assert scheme.formats("mtp.layers.1.mlp.experts.3.up_proj") == ("gptq_int4_g128",)
    assert scheme.formats("lm_head") == ("gptq_int8_g128",)


def test_a_rule_with_an_unknown_setting_is_refused_by_name(tmp_path: Path) -> None:
    def read(rule: dict[str, Any]) -> None:
        read_scheme(stored(tmp_path, {}, {**GPTQ, "dynamic": {r"+:.*mlp": rule}}))

    read({"bits": 8, "group_size": 64, "mse": 2.4})
    with pytest.raises(CheckpointError, match="pack_dtype is not supported; supported: bits"):
        read({"bits": 8, "pack_dtype": "int16"})
