"""Every tensor of a quantised checkpoint accounted for: missing ones by name, ignored ones with the reason."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.fixture import write_fixture
from dgpp.checkpoint.inventory import take_inventory
from dgpp.checkpoint.quantization import resolve_formats, resolve_tree
from dgpp.checkpoint.quantization.modules import PAYLOADS
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import SpecTree, TensorSpec, flatten
from dgpp.models import FAMILIES
from dgpp.models.llama_releases import QUANTIZED
from tests.checkpoint.quantization.support import checkpoint_of, without

FAMILY = FAMILIES["llama"]
MODULES = ("model.layers.0.mlp.gate_proj", "model.layers.1.self_attn.q_proj", "lm_head")


@pytest.fixture(params=[release.name for release in QUANTIZED])
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Checkpoint:
    return Checkpoint.open(write_fixture(FAMILY, request.param, tmp_path / "model"))


def test_W2_without_any_one_of_its_tensors_a_module_is_refused_by_name(release: Checkpoint) -> None:
    family_tree = FAMILY.abstract(FAMILY.config(release.config))
    specs = [spec for _, spec in flatten(resolve_tree(family_tree, release))]
    removed = 0
    for module in MODULES:
        spec = next(s for s in specs for layer in s.stack if s.module(layer) == module)
        for array in spec.codec.arrays(spec.shape).values():
            name = array.tensor(module)
            if array.optional or name not in release.tensors:
                continue
            removed += 1
            broken = without(release, name)
            if array.suffix in ("mcg", "mul1"):
                continue  # without its marker it is a weight in another codebook, which the next test is about
            with pytest.raises(CheckpointError) as caught:
                take_inventory(resolve_tree(family_tree, broken), broken)
            assert module in str(caught.value)
            message, lost = str(caught.value).partition(module)[2], array.suffix.rpartition(".")[2]
            named = [f".{array.suffix}' of module", f"'{array.suffix}'", f"{lost}' of module"]
            if array.suffix in PAYLOADS:
                named.append(": its weight is missing; it has only")
            assert any(name in message for name in named), message
    assert removed >= len(MODULES)


def test_W2_a_lost_marker_is_a_disagreement_that_is_said(tmp_path: Path) -> None:
    release = Checkpoint.open(write_fixture(FAMILY, "exl3", tmp_path / "model"))
    table = resolve_formats(without(release, "lm_head.mul1"))
    assert table.format_of("lm_head") == "exl3_6_3inst"
    assert any("says exl3_6_mul1 or exl3_6_mul1_su, but lm_head is stored as exl3_6_3inst" in n for n in table.notes)


def test_what_is_ignored_says_why(tmp_path: Path) -> None:
    numbers = {
        "attn.k_scale": ("F32", np.array([1], np.float32)),
        "attn.v_scale": ("F32", np.array(1, np.float32)),
        "router.input_scale": ("F32", np.array(1, np.float32)),
        "strange.k_scale": ("F32", np.ones(3, np.float32)),
    }
    checkpoint = checkpoint_of(tmp_path, {"a": "int4_g64", "b": "gptq_int4_g128", "c": "exl3_2_mcg"}, changes=numbers)
    specs: SpecTree = {name: TensorSpec(name, (256, 256), ("n", "k")) for name in "abc"}
    inventory = take_inventory(resolve_tree(specs, checkpoint), checkpoint)
    assert {row.tensor: row.note for row in inventory.ignored} == {
        "a.weight_shape": "checked and dropped",
        "b.qzeros": "checked and dropped",
        "c.mcg": "checked and dropped",
        "attn.k_scale": "scale of a quantised K/V cache, which stays bf16",
        "attn.v_scale": "scale of a quantised K/V cache, which stays bf16",
        "router.input_scale": "scale of activations, which stay bf16",
    }
    assert [row.tensor for row in inventory.unused] == ["strange.k_scale"]
    names = [row.tensor for row in (*inventory.used, *inventory.ignored, *inventory.unused)]
    assert sorted(names) == sorted(checkpoint.tensors)


def test_the_wrong_dtype_of_a_scale_is_found_before_loading(tmp_path: Path) -> None:
    change = {"a.weight_scale": ("BF16", np.zeros((256, 16), ml_dtypes.bfloat16))}
    checkpoint = checkpoint_of(tmp_path, {"a": "nvfp4"}, changes=change)
    tree = resolve_tree({"a": TensorSpec("a", (256, 256), ("n", "k"))}, checkpoint)
    with pytest.raises(CheckpointError, match=r"'a\.weight_scale' of module a is stored as BF16 .* needs F8_E4M3"):
        take_inventory(tree, checkpoint)
