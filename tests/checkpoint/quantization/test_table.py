"""The format of every module: tensors decide, the config where they leave a choice, and contradictions are noted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.quantization import resolve_formats
from dgpp.checkpoint.quantization.modules import MADE_AT_LOAD
from dgpp.formats import FORMATS
from tests.checkpoint.quantization.support import checkpoint_of

M = "model.layers.0.mlp.gate_proj"
CANNOT_BE_TOLD = {"nf4i8", "mixed346_4"}
"""Formats whose tensors look alike."""

STORED = [
    tag
    for tag in FORMATS
    if tag not in (*MADE_AT_LOAD, *CANNOT_BE_TOLD)
    and "_asym_" not in tag
    and "_act" not in tag
    and not (tag.startswith("exl3_") and tag[5] in "24578")
    and not tag.endswith(("_bare", "_chunks4"))
]


def f32(*values: float) -> tuple[str, np.ndarray]:
    return "F32", np.array(values, np.float32)


@pytest.mark.parametrize("tag", STORED)
def test_W4_the_tensors_alone_tell_the_format(tmp_path: Path, tag: str) -> None:
    table = resolve_formats(checkpoint_of(tmp_path, {M: tag}))
    assert table.format_of(M) == tag
    assert table.method == "none"
    unquantized = tag in ("bf16", "f16", "f32")
    assert len(table.notes) == (not unquantized)
    assert table.format_of("model.no.such.module") is None


@pytest.mark.parametrize("tag", sorted(CANNOT_BE_TOLD))
def test_formats_whose_tensors_look_alike_need_the_config(tmp_path: Path, tag: str) -> None:
    with pytest.raises(CheckpointError, match=f"module {M}: its tensors could be nf4i8 or mixed346_4"):
        resolve_formats(checkpoint_of(tmp_path / "a", {M: tag})).format_of(M)
    experts = {"layers": [0, 1], "targets": ["re:.*mlp"]}
    config = {"quant_method": "dgpp_nf4i8", "routed_experts": experts}
    if tag == "mixed346_4":
        config = {"quant_method": "dgpp_mixed346", "routed_experts": experts, "recipe": {"layer_recipes": {"0": "444"}}}
    table = resolve_formats(checkpoint_of(tmp_path / "b", {M: tag}, config))
    assert table.format_of(M) == tag
    assert table.notes == ()


@pytest.mark.parametrize(
    ("shape", "tag"),
    [
        ((130, 200), "fp8_block128"),
        ((200, 130), "fp8_block128_bf16"),
        ((60, 60), "fp8_block32_e8m0"),
        ((768, 256), "fp8_block128_chunks4"),
        ((64, 352), "gptq_int4_g128"),
        ((64, 352), "gptq_int8_g32"),
        ((67, 104), "int4_g64"),
        ((67, 1000), "int8_g32_f16"),
    ],
)
def test_W9_short_blocks_and_tail_groups_are_counted(tmp_path: Path, shape: tuple[int, int], tag: str) -> None:
    assert resolve_formats(checkpoint_of(tmp_path, {M: tag}, shape=shape)).format_of(M) == tag


def test_W9_modules_of_one_kind_may_be_in_different_formats(tmp_path: Path) -> None:
    """AutoRound quantises a router, leaves one projection out, and its config says neither."""
    modules = {
        "model.layers.0.mlp.gate": "gptq_int4_g128",
        "model.layers.0.self_attn.q_proj": "gptq_int4_g128",
        "model.layers.0.self_attn.v_proj": "bf16",
        "model.layers.1.self_attn.v_proj": "gptq_int8_g128",
    }
    config = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "dynamic": {r"-:.*mlp\.gate$": {}}}
    table = resolve_formats(checkpoint_of(tmp_path, modules, config))
    assert {module: table.format_of(module) for module in modules} == modules
    assert len(table.notes) == 3
    assert any("says unquantized, but model.layers.0.mlp.gate is stored as gptq_int4_g128" in n for n in table.notes)
    assert any("v_proj is stored as bf16" in note for note in table.notes)


def test_modules_that_disagree_in_the_same_way_are_counted_in_one_note(tmp_path: Path) -> None:
    modules = {f"model.layers.{layer}.mlp.up_proj": "bf16" for layer in range(4)}
    notes = resolve_formats(checkpoint_of(tmp_path, modules, {"quant_method": "fp8"})).notes
    assert len(notes) == 1
    assert "config.json: quantization_config says fp8_block128 or fp8_block128_bf16" in notes[0]
    assert "4 modules, e.g. model.layers.0.mlp.up_proj, are stored as bf16; taken as stored" in notes[0]


def test_one_block_of_any_size_is_no_disagreement(tmp_path: Path) -> None:
    for i, block in enumerate(([128, 128], [32, 32])):
        config = {"quant_method": "fp8", "weight_block_size": block}
        table = resolve_formats(checkpoint_of(tmp_path / str(i), {M: "fp8_block128"}, config, shape=(16, 16)))
        assert (table.format_of(M), table.notes) == (f"fp8_block{block[0]}", ())


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
ASYMMETRIC = "gptq_int4_g128_asym_v2"


def test_W5_symmetric_zero_points_are_told_by_their_value(tmp_path: Path) -> None:
    """Stored as 7 or as 8 under the same `checkpoint_format`."""
    config = {**GPTQ, "sym": True, "checkpoint_format": "gptq"}
    for i, word in enumerate((0x77777777, 0x88888888)):
        zeros = np.full((2, 32), word, np.uint32).view(np.int32)
        checkpoint = checkpoint_of(tmp_path / str(i), {M: "gptq_int4_g128"}, config, {M + ".qzeros": ("I32", zeros)})
        assert resolve_formats(checkpoint).format_of(M) == "gptq_int4_g128"


def test_W5_asymmetric_zero_points_are_refused_unless_the_config_says_their_version(tmp_path: Path) -> None:
    """Nothing in the tensors could tell 7 for 7 from 7 for 8."""
    unsaid = resolve_formats(checkpoint_of(tmp_path / "a", {M: ASYMMETRIC}, {**GPTQ, "sym": False}))
    with pytest.raises(CheckpointError, match=f"module {M}: its tensors could be gptq_int4_g128_asym_v1 or"):
        unsaid.format_of(M)
    with pytest.raises(CheckpointError, match=f"module {M}: its tensors could be"):
        resolve_formats(checkpoint_of(tmp_path / "b", {M: ASYMMETRIC})).format_of(M)
    for version, name in ((1, "gptq"), (2, "gptq_v2")):
        config = {**GPTQ, "sym": False, "checkpoint_format": name}
        table = resolve_formats(checkpoint_of(tmp_path / name, {M: ASYMMETRIC}, config))
        assert table.format_of(M) == f"gptq_int4_g128_asym_v{version}"


def test_groups_in_another_order_are_told_by_g_idx(tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(256)
    for i, act in enumerate((False, True)):
        g_idx = ("I32", ((order if act else np.arange(256)) // 128).astype(np.int32))
        checkpoint = checkpoint_of(tmp_path / str(i), {M: "gptq_int4_g128"}, {**GPTQ, "desc_act": True}, {
            M + ".g_idx": g_idx
        })  # fmt: skip
        table = resolve_formats(checkpoint)
        assert (table.format_of(M), table.notes) == ("gptq_int4_g128" + ("_act" if act else ""), ())


BF16 = ("BF16", np.zeros((256, 256), ml_dtypes.bfloat16))


@pytest.mark.parametrize(
    ("tag", "changes", "words"),
    [
        ("bf16", {M + ".weight_scale_inv": f32(1)}, "its weight is BF16 but 'weight_scale_inv' would scale it"),
        ("gptq_int4_g128", {M + ".weight": BF16}, "it holds 'weight' and 'qweight', two forms of one weight"),
        ("nvfp4", {M + ".pre_quant_scale": f32(1)}, "it also holds 'pre_quant_scale', which no format here applies"),
        ("nvfp4", {M + ".weight_scale": BF16}, None),
        ("fp8_block128", {M + ".weight_scale_inv": f32(1, 1)}, r"'weight_scale_inv' \[2\] is no grid of blocks over"),
        ("fp8_block128", {M + ".weight_scale_inv": ("F16", np.ones((2, 2), np.float16))}, "stored as F16; it would"),
        ("fp8_channel", {M + ".weight_scale": ("F16", np.ones((256, 1), np.float16))}, "has a scale stored as F16"),
        ("mxfp4", {M + ".weight_scale": f32(1)}, "its U8 weight has a scale stored as F32, which is no format here"),
        ("int4_g64", {M + ".weight_shape": ("I64", np.array([256, 100]))}, "hold 100 integers of 10.24 bits, not 4"),
        ("int4_g64", {M + ".weight_shape": ("I64", np.array([256]))}, "'weight_shape' holds 1 numbers, not N and K"),
        ("int4_g64", {M + ".weight_scale": ("BF16", np.ones((256, 3), ml_dtypes.bfloat16))}, "3 scales a row are no"),
        ("mixed346_3", {M + ".weight_shape": ("I64", np.array([256, 77]))}, "hold 77 indices of"),
        ("exl3_3_mul1", {M + ".mcg": ("I32", np.array(1, np.int32))}, "marked with the codebooks mcg and mul1"),
        ("bf16", {M + ".weight": ("F64", np.zeros((2, 2)))}, "its weight is stored as F64, which is no format here"),
    ],
)
def test_tensors_in_no_known_form_name_the_module(
    tmp_path: Path, tag: str, changes: dict[str, Any], words: str | None
) -> None:
    table = resolve_formats(checkpoint_of(tmp_path, {M: tag, "other": "bf16"}, changes=changes))
    assert table.format_of("other") == "bf16"
    if words is None:  # still told by the second scale; the inventory finds the wrong dtype
        assert table.format_of(M) == tag
        return
    with pytest.raises(CheckpointError, match=rf"{tmp_path}: module {M}: .*{words}"):
        table.format_of(M)


def test_an_unknown_method_is_refused_whatever_the_tensors_are(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="quant_method 'bitsandbytes' is not supported"):
        resolve_formats(checkpoint_of(tmp_path, {M: "bf16"}, {"quant_method": "bitsandbytes", "load_in_4bit": True}))


SCHEME = {"num_bits": 8, "type": "float", "dynamic": False}


@pytest.mark.parametrize("method", ["modelopt", "compressed-tensors"])
def test_W13_declared_cache_scales_that_are_absent_are_said_to_be(tmp_path: Path, method: str) -> None:
    config = {"quant_method": method, "quant_algo": "NVFP4", "ignore": [M], "kv_cache_scheme": SCHEME}
    (note,) = resolve_formats(checkpoint_of(tmp_path / "absent", {M: "bf16"}, config)).notes
    assert note.startswith("K and V are kept in bf16: ")
    assert "declares scales for a quantised cache" in note
    assert note.endswith("the checkpoint has none")
    scales = {f"model.layers.0.self_attn.{name}": f32(1) for name in ("k_proj.k_scale", "v_scale")}
    (note,) = resolve_formats(checkpoint_of(tmp_path / "there", {M: "bf16"}, config, scales)).notes
    assert note == "K and V are kept in bf16: 2 k_scale and v_scale tensors are not used"
