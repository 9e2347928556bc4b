"""Loading what is stored in several modules, held in another format, or only compared."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.inventory import take_inventory
from dgpp.checkpoint.load import load_weights
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import SpecTree, TensorSpec
from dgpp.formats import format_named
from tests.checkpoint.test_load_formats import checkpoint_of

EXPERTS, N, K = 3, 16, 256
AXES = ("experts", "mlp", "embed")


def experts(tag: str, shape: tuple[int, int] = (N, K), resident: str = "") -> SpecTree:
    spec = TensorSpec("l.{layer}.experts.{expert}.up", (EXPERTS, *shape), AXES, tag, numbers=(1, 4), resident=resident)
    return {"up": spec}


def stored(checkpoint: Checkpoint, module: str, tag: str, shape: tuple[int, int]) -> np.ndarray:
    """The values of a module as its files have them."""
    arrays = {
        name: checkpoint.read(packed.tensor(module))
        for name, packed in format_named(tag).arrays(shape).items()
        if packed.tensor(module) in checkpoint.tensors
    }
    return format_named(tag).decode(arrays, shape)


@pytest.mark.parametrize("tag", ["bf16", "fp8_block128_bf16", "nvfp4", "nvfp4_divisor", "gptq_int4_g128", "mxfp8"])
def test_experts_are_stacked_behind_the_layers(tmp_path: Path, tag: str) -> None:
    checkpoint = checkpoint_of(tmp_path, experts(tag))
    up = load_weights(experts(tag), checkpoint)["up"]
    assert up.numbers == (1, 4)
    assert up.shape == (EXPERTS, N, K)
    values = format_named(up.format).decode(up.arrays, up.shape)
    assert values.shape == (2, EXPERTS, N, K)
    for layer in (1, 4):
        for expert in range(EXPERTS):
            expected = stored(checkpoint, f"l.{layer}.experts.{expert}.up", tag, (N, K))
            assert (values[up.place(layer), expert] == expected).all()
    one = load_weights(experts(tag), checkpoint, layers=(4,))["up"]
    assert one.numbers == (4,)
    assert (format_named(one.format).decode(one.arrays, one.shape)[0] == values[1]).all()


def test_W2_a_missing_scale_of_one_expert_is_named(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, experts("nvfp4"), {"l.4.experts.2.up.weight_scale_2": None})
    words = r"tensor 'l.4.experts.2.up.weight_scale_2' of module up\[4\]\[2\] is missing; the module has only .weight"
    with pytest.raises(CheckpointError, match=words):
        load_weights(experts("nvfp4"), checkpoint)


def test_many_missing_experts_are_counted(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, {"norm": TensorSpec("norm", (4,), ("embed",))})
    with pytest.raises(CheckpointError, match=r"up\[1\]\[0\] is missing; .* and 1 more$"):
        take_inventory(experts("bf16"), checkpoint)


def table(tag: str, rows: int = 12) -> SpecTree:
    axes = ("ngrams", "embed")
    return {"table": TensorSpec("t.shard_{part}", (rows, 32), axes, tag, linear=False, parts=4, whole="t")}


@pytest.mark.parametrize("tag", ["bf16", "fp8_tensor", "nvfp4", "mxfp8"])
def test_parts_of_a_table_lie_one_after_the_other(tmp_path: Path, tag: str) -> None:
    checkpoint = checkpoint_of(tmp_path, table(tag))
    weight = load_weights(table(tag), checkpoint)["table"]
    assert {name for name in checkpoint.tensors if name.endswith(".weight")} == {
        f"t.shard_{i}.weight" for i in range(4)
    }
    format = format_named(tag)
    shared = {
        name: checkpoint.read(packed.tensor("t"))
        for name, packed in format.arrays((12, 32)).items()
        if packed.tensor("t") in checkpoint.tensors
    }
    rows = {
        name: [checkpoint.read(packed.tensor(f"t.shard_{part}")) for part in range(4)]
        for name, packed in format.arrays((3, 32)).items()
        if packed.tensor("t.shard_0") in checkpoint.tensors
    }
    whole = format.decode({**shared, **{name: np.concatenate(parts) for name, parts in rows.items()}}, (12, 32))
    assert (format.decode(weight.arrays, (12, 32)) == whole).all()


def test_a_missing_shared_scale_of_a_table_is_named(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, table("fp8_tensor"), {"t.weight_scale": None})
    with pytest.raises(CheckpointError, match=r"tensor 't.weight_scale' of module table is missing; .*shard_0.weight"):
        load_weights(table("fp8_tensor"), checkpoint)


def test_a_weight_is_held_without_loss_in_bf12(tmp_path: Path) -> None:
    tree = experts("bf16", (8, 1024), "bf12")
    rng = np.random.default_rng(0)
    wild = rng.integers(0, 2**16, (8, 1024), np.uint16).view(format_named("bf16").encode(np.zeros(1))["values"].dtype)
    wild[np.isnan(wild.astype(np.float32))] = 1
    checkpoint = checkpoint_of(tmp_path, tree, {"l.1.experts.2.up.weight": wild})
    up = load_weights(tree, checkpoint)["up"]
    assert up.format == "bf12"
    assert up.arrays["raw"].shape == (2, EXPERTS, 8, 1024)  # as many as the wildest expert needs
    values = format_named("bf12").decode(up.arrays, up.shape)
    for layer in (1, 4):
        for expert in range(EXPERTS):
            expected = checkpoint.read(f"l.{layer}.experts.{expert}.up.weight").astype(np.float32)
            assert (values[up.place(layer), expert].view(np.int32) == expected.view(np.int32)).all()


def test_a_weight_is_encoded_at_load(tmp_path: Path) -> None:
    tree = experts("bf16", (130, 200), "fp8_block128")
    checkpoint = checkpoint_of(tmp_path, tree)
    up = load_weights(tree, checkpoint)["up"]
    assert up.format == "fp8_block128"
    expected = format_named("fp8_block128").encode(checkpoint.read("l.4.experts.1.up.weight").astype(np.float32))
    for name, array in expected.items():
        assert (up.arrays[name][1, 1] == array).all()


def integers(*values: int) -> SpecTree:
    return {"m": TensorSpec("ple.layer_multipliers", (len(values),), ("heads",), "i64_bare", values=values)}


def test_integers_are_compared_and_not_kept(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, integers(23703573157769, -5))
    assert checkpoint.read("ple.layer_multipliers").tolist() == [23703573157769, -5]
    weight = load_weights(integers(23703573157769, -5), checkpoint)["m"]
    assert jax.tree.leaves(weight) == []
    words = r"ple.layer_multipliers: it holds \[23703573157769, -5\], but config.json makes it \[23703573157769, 5\]"
    with pytest.raises(CheckpointError, match=words):
        load_weights(integers(23703573157769, 5), checkpoint)
