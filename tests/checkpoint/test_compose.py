"""The hybrid of two releases: every tensor from its source bit for bit, and anything odd refused before writing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgpp.checkpoint import compose as module
from dgpp.checkpoint.compose import Plan, compose, plan
from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.fixture import gaussian, write_json, write_tensors
from dgpp.checkpoint.quantization import resolve_formats
from dgpp.checkpoint.reader import Checkpoint
from dgpp.formats import format_named

D, F, EXPERTS = 160, 96, 3
LAYERS = "model.language_model.layers"
PROJECTIONS = {"gate_proj": (F, D), "up_proj": (F, D), "down_proj": (D, F)}
TEXT = {
    "hidden_size": D,
    "num_hidden_layers": 3,  # 0 is dense, 1 and 2 have experts, 3 is the draft
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "n_routed_experts": EXPERTS,
    "num_nextn_predict_layers": 1,
}
FP8 = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "weight_block_size": [128, 128],
    "modules_to_not_convert": ["lm_head", "mlp.gate"],
}


def encoded(tag: str, name: str, shape: tuple[int, int]) -> dict[str, tuple[str, np.ndarray]]:
    format = format_named(tag)
    packed = format.arrays(shape)
    arrays = format.encode((gaussian(shape, 0, name) / 8).astype(np.float32))
    return {packed[field].tensor(name): (packed[field].tag, array) for field, array in arrays.items()}


def expert_names(layers: tuple[int, ...]) -> dict[str, tuple[int, int]]:
    return {
        f"{LAYERS}.{layer}.mlp.experts.{expert}.{name}": shape
        for layer in layers
        for expert in range(EXPERTS)
        for name, shape in PROJECTIONS.items()
    }


def write_base(directory: Path) -> Path:
    tensors = {
        "lm_head.weight": ("F32", gaussian((4, D), 0, "head").astype(np.float32)),
        **encoded("bf16", f"{LAYERS}.1.mlp.gate", (EXPERTS, D)),
        **encoded("fp8_block128", f"{LAYERS}.0.self_attn.q_a_proj", (64, D)),
        **encoded("fp8_block128", f"{LAYERS}.1.mlp.shared_experts.up_proj", (F, D)),
    }
    for name, shape in expert_names((1, 2, 3)).items():
        tensors |= encoded("fp8_block128", name, shape)
    return _write(directory, tensors, FP8, shards=2)


def write_experts(directory: Path) -> Path:
    tensors = encoded("bf16", f"{LAYERS}.1.mlp.gate", (EXPERTS, D))
    for name, shape in expert_names((1, 2)).items():
        tensors |= encoded("nvfp4_divisor", name, shape)
        tensors[f"{name}.input_global_scale"] = ("F32", np.ones(1, np.float32))
    return _write(directory, tensors, {"quant_method": "compressed-tensors"})


def _write(directory: Path, tensors: dict[str, Any], quantization: dict[str, Any], shards: int = 1) -> Path:
    directory.mkdir()
    write_tensors(tensors, directory, shards)
    config = {"architectures": ["Glm5NextForConditionalGeneration"], "text_config": TEXT}
    write_json(directory / "config.json", {**config, "quantization_config": quantization})
    (directory / "tokenizer.json").write_text("{}")
    return directory


@pytest.fixture
def sources(tmp_path: Path) -> tuple[Path, Path]:
    return write_base(tmp_path / "base"), write_experts(tmp_path / "experts")


def planned(sources: tuple[Path, Path]) -> Plan:
    return plan(*map(Checkpoint.open, sources))


@pytest.mark.parametrize("shard_bytes", [1 << 30, 50_000])
def test_every_tensor_comes_from_its_source_bit_for_bit(
    sources: tuple[Path, Path], tmp_path: Path, shard_bytes: int
) -> None:
    seen: list[tuple[int, int]] = []
    compose(planned(sources), tmp_path / "new", shard_bytes, lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == 2 * planned(sources).nbytes
    base, experts = map(Checkpoint.open, sources)
    new = Checkpoint.open(tmp_path / "new")
    assert (len(new.shards) > 1) == (shard_bytes < 1 << 20)
    replaced = expert_names((1, 2))
    for name in new.tensors:
        source = experts if name.rpartition(".")[0] in replaced else base
        assert new.tensors[name].info.tag == source.tensors[name].info.tag
        assert new.read(name).tobytes() == source.read(name).tobytes()
    assert not any("input_global_scale" in name for name in new.tensors)
    assert len(new.tensors) == len(base.tensors) + len(replaced)  # three tensors instead of two
    names = [name for shard in new.shards for name, at in new.tensors.items() if at.shard == shard]
    assert sorted(names) == sorted(new.tensors)
    assert (tmp_path / "new" / "tokenizer.json").is_file()


def test_the_result_says_what_it_is_and_is_read_as_that(sources: tuple[Path, Path], tmp_path: Path) -> None:
    compose(planned(sources), tmp_path / "new")
    new = Checkpoint.open(tmp_path / "new")
    quantization = new.config["quantization_config"]
    assert quantization["quant_method"] == "dgpp_mixed"
    assert quantization["routed_experts"] == {
        "format": "nvfp4-pack-quantized",
        "group_size": 16,
        "num_bits": 4,
        "layers": [1, 2],
    }
    assert quantization["mtp_layer"] == quantization["dsa_attention"] == {"source": "base"}
    table = resolve_formats(new)
    assert table.notes == ()
    assert {table.formats[name] for name in expert_names((1, 2))} == {"nvfp4_divisor"}
    assert {table.formats[name] for name in expert_names((3,))} == {"fp8_block128"}


def test_the_nibbles_are_in_their_order(sources: tuple[Path, Path], tmp_path: Path) -> None:
    """The experts of both sources are the same weights, rounded twice: near each other, unless nibbles are swapped."""
    compose(planned(sources), tmp_path / "new")
    base, new = Checkpoint.open(sources[0]), Checkpoint.open(tmp_path / "new")
    name, shape = next(iter(expert_names((1,)).items()))

    def decoded(checkpoint: Checkpoint, tag: str, swapped: bool = False) -> np.ndarray:
        format = format_named(tag)
        arrays = {
            field: checkpoint.read(packed.tensor(name))
            for field, packed in format.arrays(shape).items()
            if packed.resident
        }
        if swapped:
            arrays["codes"] = (arrays["codes"] << 4) | (arrays["codes"] >> 4)
        return format.decode64(arrays, shape)

    exact = decoded(base, "fp8_block128")
    errors = [
        np.linalg.norm(decoded(new, "nvfp4_divisor", swapped) - exact) / np.linalg.norm(exact)
        for swapped in (False, True)
    ]
    assert errors[0] < 0.12
    assert errors[1] > 1


def change_config(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    config = json.loads((path / "config.json").read_text())
    change(config)
    (path / "config.json").write_text(json.dumps(config))


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    checkpoint = Checkpoint.open(path)
    tensors = {name: (at.info.tag, np.array(checkpoint.read(name))) for name, at in checkpoint.tensors.items()}
    change(tensors)
    for shard in path.glob("*.safetensors*"):
        shard.unlink()
    write_tensors(tensors, path)


EXPERT = f"{LAYERS}.2.mlp.experts.1.up_proj"


@pytest.mark.parametrize(
    ("which", "change", "words"),
    [
        (1, lambda c: c["text_config"].update(hidden_size=192), "not the same model: hidden_size .* is 160 and 192"),
        (0, lambda c: c["quantization_config"].update(quant_method="modelopt"), "the base must be the FP8 release"),
        (0, lambda c: c["text_config"].update(n_routed_experts=None), "not the same model: n_routed_experts"),
    ],
)
def test_sources_that_do_not_go_together(
    sources: tuple[Path, Path], which: int, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    change_config(sources[which], change)
    with pytest.raises(CheckpointError, match=words):
        planned(sources)


@pytest.mark.parametrize(
    ("which", "change", "words"),
    [
        (
            0,
            lambda t: [t.pop(f"{EXPERT}.{x}") for x in ("weight", "weight_scale_inv")],
            "layer 2 has 8 projections of 3",
        ),
        (0, lambda t: t.pop(f"{EXPERT}.weight_scale_inv"), "no shard holds tensor '.*up_proj.weight_scale_inv'"),
        (1, lambda t: t.pop(f"{EXPERT}.weight_global_scale"), "no shard holds tensor '.*up_proj.weight_global_scale'"),
        (
            1,
            lambda t: t.update({f"{EXPERT}.weight_scale": ("U8", t[f"{EXPERT}.weight_scale"][1])}),
            r"up_proj.weight_scale is U8 \[96, 10\], not F8_E4M3 \[96, 10\]",
        ),
        (
            1,
            lambda t: t.update({f"{EXPERT}.weight_packed": ("U8", t[f"{EXPERT}.weight_packed"][1][:, :-8])}),
            r"up_proj.weight_packed is U8 \[96, 72\], not U8 \[96, 80\]",
        ),
    ],
)
def test_tensors_that_are_missing_or_of_another_kind(
    sources: tuple[Path, Path], which: int, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    rewrite(sources[which], change)
    with pytest.raises(CheckpointError, match=words):
        planned(sources)


def test_what_reads_back_differently_is_thrown_away(
    sources: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(directory: Path, *arguments: Any) -> dict[str, str]:
        where = write_shards(directory, *arguments)
        at = Checkpoint.open(directory).tensors[f"{EXPERT}.weight_packed"]
        with (directory / at.shard).open("r+b") as file:
            file.seek(at.offset + 5)
            byte = file.read(1)[0]
            file.seek(at.offset + 5)
            file.write(bytes([byte ^ 1]))
        return where

    write_shards = module.write_shards
    monkeypatch.setattr(module, "write_shards", damaged)
    with pytest.raises(CheckpointError, match=r"up_proj\.weight_packed was written, but reads back differently"):
        compose(planned(sources), tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "experts"]
