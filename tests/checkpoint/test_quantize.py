"""Quantising a checkpoint: what is written loads as what the encoders make, and says what it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dgpp.checkpoint.declaration import declare
from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.fixture import write_json, write_weights
from dgpp.checkpoint.load import load_weights
from dgpp.checkpoint.quantization import resolve_formats, resolve_tree
from dgpp.checkpoint.quantize import quantize
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import SpecTree, TensorSpec
from dgpp.formats import format_named

N, K = 128, 256
EXPERTS = "model.layers.{layer}.mlp.experts.{expert}.up_proj"
TREE: SpecTree = {
    "embed": TensorSpec("model.embed_tokens", (96, K), ("vocab", "embed"), plain=True, linear=False),
    "layers": {
        "norm": TensorSpec("model.layers.{layer}.input_layernorm", (K,), ("embed",), numbers=(0, 1)),
        "up_proj": TensorSpec("model.layers.{layer}.mlp.up_proj", (N, K), ("mlp", "embed"), numbers=(0, 1)),
        "o_proj": TensorSpec("model.layers.{layer}.self_attn.o_proj", (N, K), ("embed", "heads"), numbers=(0, 1)),
        "experts": TensorSpec(EXPERTS, (2, N, K), ("experts", "mlp", "embed"), numbers=(1,)),
    },
    "mtp": {"fc": TensorSpec("mtp.fc", (N, K), ("embed", "embed"))},
    "head": TensorSpec("lm_head", (96, K), ("vocab", "embed")),
}
LINEARS = [f"model.layers.{layer}.{name}" for layer in (0, 1) for name in ("mlp.up_proj", "self_attn.o_proj")]
LINEARS += [f"model.layers.1.mlp.experts.{expert}.up_proj" for expert in (0, 1)]

WRITTEN = (
    "f16",
    "fp8_block128",
    "fp8_block128_bf16",
    "fp8_block32_e8m0",
    "fp8_channel",
    "fp8_tensor_f32",
    "nvfp4",
    "nvfp4_divisor",
    "nvfp4_csf",
    "mxfp4",
    "mxfp4_packed",
    "mxfp4_blocks",
    "mxfp4_csf",
    "mxfp8",
    "int4_g64",
    "int8_g64",
    "int4_g128",
    "gptq_int4_g128",
    "gptq_int8_g128",
    "gptq_int4_g64_asym_v1",
    "gptq_int4_g128_asym_v2",
    "nf4i8",
    "mixed346_3",
    "mixed346_6",
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    directory = tmp_path_factory.mktemp("source")
    write_weights(TREE, directory, seed=0, shards=2)
    write_json(directory / "config.json", {"architectures": ["X"]})
    (directory / "tokenizer.json").write_text("{}")
    return Checkpoint.open(directory)


@pytest.mark.parametrize("tag", WRITTEN)
def test_the_new_checkpoint_is_declared_as_releases_do_and_loads(source: Checkpoint, tmp_path: Path, tag: str) -> None:
    done = quantize(source, TREE, tag, tmp_path / "new")
    assert sorted(done.modules) == sorted(LINEARS)
    assert done.kept == ("mtp.fc", "lm_head")
    new = Checkpoint.open(tmp_path / "new")
    assert done.after == new.nbytes
    assert (tmp_path / "new" / "tokenizer.json").is_file()
    table = resolve_formats(new)
    assert {table.formats[module] for module in LINEARS} == {tag}
    assert {table.formats[module] for module in ("lm_head", "mtp.fc", "model.embed_tokens")} == {"bf16"}
    assert table.notes == ()
    weights = load_weights(resolve_tree(TREE, new), new)
    codec, held = format_named(tag), format_named(format_named(tag).loads_as)
    arrays = weights["layers"]["up_proj"].arrays
    values = np.asarray(source.read("model.layers.1.mlp.up_proj.weight"), np.float32)
    encoded = codec.encode(values)
    expected = codec.decode(encoded, values.shape)
    assert (held.decode({name: array[1] for name, array in arrays.items()}, values.shape) == expected).all()
    assert (weights["head"].arrays["values"] == source.read("lm_head.weight")).all()


def test_the_head_is_quantised_when_it_is_asked_for(source: Checkpoint, tmp_path: Path) -> None:
    done = quantize(source, TREE, "nvfp4_divisor", tmp_path / "new", head=True, shard_bytes=50_000)
    assert "lm_head" in done.modules
    new = Checkpoint.open(tmp_path / "new")
    assert len(new.shards) > 1
    assert resolve_formats(new).formats["lm_head"] == "nvfp4_divisor"


def test_shapes_that_do_not_fit_are_refused_or_kept(source: Checkpoint, tmp_path: Path) -> None:
    odd: SpecTree = {
        **TREE,
        "layers": {**dict(TREE["layers"]), "odd": TensorSpec("model.layers.{layer}.odd", (N, 80), ("mlp", "embed"))},  # type: ignore[arg-type]
    }
    write_weights(odd, tmp_path, seed=0)
    write_json(tmp_path / "config.json", {})
    checkpoint = Checkpoint.open(tmp_path)
    with pytest.raises(CheckpointError, match=r"model.layers.0.odd cannot be quantised: mxfp4_packed: K = 80"):
        quantize(checkpoint, odd, "mxfp4_packed", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    done = quantize(checkpoint, odd, "mxfp4_packed", tmp_path / "new", keep_unfit=True)
    assert "model.layers.0.odd" in done.kept
    assert resolve_formats(Checkpoint.open(tmp_path / "new")).formats["model.layers.0.odd"] == "bf16"


def test_fused_experts_are_refused_or_kept(tmp_path: Path) -> None:
    fused = TensorSpec("experts.up_proj", (2, N, K), ("experts", "mlp", "embed"), "bf16_bare")
    tree: SpecTree = {"fused": fused, "up": TensorSpec("layers.0.up_proj", (N, K), ("mlp", "embed"))}
    write_weights(tree, tmp_path, seed=0)
    write_json(tmp_path / "config.json", {})
    checkpoint = Checkpoint.open(tmp_path)
    with pytest.raises(
        CheckpointError, match=r"experts.up_proj cannot be quantised: it is one tensor .2, 128, 256. of several"
    ):
        quantize(checkpoint, tree, "nvfp4", tmp_path / "new")
    assert quantize(checkpoint, tree, "nvfp4", tmp_path / "new", keep_unfit=True).kept == ("experts.up_proj",)


def test_what_cannot_be_written_is_refused_by_name(source: Checkpoint, tmp_path: Path) -> None:
    for tag, words in {
        "fp9": "unknown weight format 'fp9'",
        "int8_planes_g128": "no release stores linears as int8_planes_g128",
        "int4_g128_f16": "no release stores linears as int4_g128_f16",
        "bf12": "K = 256 is not a multiple of 1024",
    }.items():
        with pytest.raises(CheckpointError, match=words):
            quantize(source, TREE, tag, tmp_path / "new")
    quantize(source, TREE, "mxfp8", tmp_path / "new")
    with pytest.raises(CheckpointError, match="is mxfp8 already; give a BF16 checkpoint"):
        quantize(Checkpoint.open(tmp_path / "new"), TREE, "nvfp4", tmp_path / "again")
    with pytest.raises(CheckpointError, match="new exists already"):
        quantize(source, TREE, "nvfp4", tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new"]


def test_a_run_that_fails_leaves_nothing(source: Checkpoint, tmp_path: Path) -> None:
    def progress(done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(source, TREE, "nvfp4", tmp_path / "new", progress=progress)
    assert list(tmp_path.iterdir()) == []


def test_trellis_formats_are_declared_module_by_module() -> None:
    declaration = declare("exl3_3.5_mul1", ["a.q_proj", "a.up_proj"], ["lm_head"])
    assert declaration.config is not None
    assert declaration.config["quant_method"] == "exl3"
    storage = declaration.files["quantization_config.json"]["tensor_storage"]
    assert storage["a.up_proj"] == {"quant_format": "exl3", "bits_per_weight": 3.5, "mul1_multiplier": 0x83DCD12D}
    assert json.loads(json.dumps(declaration.config)) == declaration.config
