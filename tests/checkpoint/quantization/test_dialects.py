"""What each dialect of `quantization_config` says about modules, and what it is refused for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.quantization import METHODS
from dgpp.checkpoint.quantization.dialects import read_scheme
from dgpp.checkpoint.quantization.tags import UNQUANTIZED
from tests.checkpoint.quantization.support import checkpoint_of, scheme_of

LAYER = "model.layers.3."
GATE, Q = LAYER + "mlp.gate_proj", LAYER + "self_attn.q_proj"
EXPERT = LAYER + "mlp.experts.17.down_proj"
NO = UNQUANTIZED

FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
BLOCKS = ("fp8_block128", "fp8_block128_bf16", "fp8_block128_e8m0", "fp8_group128_e8m0", "fp8_block128_chunks4")
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}


def group(targets: list[str], format: str | None = None, **weights: Any) -> dict[str, Any]:
    return {"targets": targets, "weights": weights, **({"format": format} if format else {})}


def compressed(format: str, *groups: dict[str, Any], **more: Any) -> dict[str, Any]:
    numbered = {f"group_{i}": entry for i, entry in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "format": format, "config_groups": numbered, **more}


INT4, INT8 = ({"num_bits": bits, "type": "int", "strategy": "group", "group_size": 64} for bits in (4, 8))
CHANNEL = {"num_bits": 8, "type": "float", "strategy": "channel"}
MIXED = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
EXPERTS = {"layers": [3, 77]}

SAYS: dict[str, tuple[dict[str, Any], dict[str, tuple[str, ...]]]] = {
    "nothing": ({}, {GATE: NO}),
    # fp8
    "fp8": (FP8, {GATE: BLOCKS, "lm_head": BLOCKS, "model.embed_tokens": NO}),
    "fp8: an ignored name ends at a dot": (
        {**FP8, "modules_to_not_convert": ["model.layers.3.mlp.gate", "lm_head"]},
        {LAYER + "mlp.gate": NO, GATE: BLOCKS, "lm_head": NO, "model.layers.30.mlp.gate": BLOCKS},
    ),
    "fp8: a prefix, an expression, an ending": (
        {**FP8, "ignored_layers": ["model.layers.1", r"model\.layers\.\d\.mlp.*", "k_proj"]},
        {"model.layers.1.self_attn.q_proj": NO, "model.layers.11.self_attn.q_proj": BLOCKS, GATE: NO, Q: BLOCKS}
        | {LAYER + "self_attn.k_proj": NO},
    ),
    "fp8: added tables": (
        {**FP8, "modules_to_convert": ["model.ngram.embedding"]},
        {"model.ngram.embedding": (*BLOCKS, "fp8_tensor*", "fp8_channel*")},
    ),
    "fp8: one scale": ({**FP8, "weight_block_size": None}, {GATE: ("fp8_tensor*", "fp8_channel*")}),
    "fp8: DeepSeek": (
        {**FP8, "weight_block_size": [32, 32], "scale_fmt": "ue8m0", "expert_dtype": "fp4"},
        {"layers.3.ffn.experts.9.w1": ("mxfp4_deepseek",), "layers.3.ffn.shared_experts.w1": (
            "fp8_block32", "fp8_block32_bf16", "fp8_block32_e8m0", "fp8_group32_e8m0"
        )},
    ),
    "fp8: MiMo": (
        {**FP8, "store_dtype": "mxfp4", "mxfp4_block_size": 32},
        {EXPERT: ("mxfp4",), GATE: BLOCKS},
    ),
    # modelopt
    "modelopt: globs over the whole name": (
        {**NVFP4, "ignore": ["lm_head", "model.layers.3.self_attn*", "model.layers.9.*"]},
        {GATE: ("nvfp4",), Q: NO, "lm_head": NO, "model.layers.9": NO, "model.layers.90.mlp.up_proj": ("nvfp4",)},
    ),
    "modelopt: the weights alone": ({**NVFP4, "quant_algo": "W4A16_NVFP4", "group_size": 16}, {GATE: ("nvfp4",)}),
    "modelopt: fp8": ({**NVFP4, "quant_algo": "FP8"}, {GATE: ("fp8_tensor*",)}),
    "modelopt: by layer": (
        {
            **MIXED,
            "quantized_layers": {
                LAYER + "mlp.experts": {"quant_algo": "NVFP4", "group_size": 16, "weight_scale_encoding": "csf"},
                LAYER + "mlp": {"quant_algo": "MXFP8", "group_size": 32},
            },
        },
        {EXPERT: ("nvfp4_csf",), GATE: ("mxfp8",), Q: NO, "model.layers.30.mlp.gate_proj": NO},
    ),
    # compressed-tensors
    "compressed: the first group wins, names are never prefixes": (
        compressed(
            "mixed-precision",
            group([r"re:.*layers\.3\.mlp.*", "model.layers.3"], "pack-quantized", **INT4),
            group(["Linear"], "float-quantized", **CHANNEL),
        ),
        {GATE: ("int4_g64*",), Q: ("fp8_channel*",), "lm_head": ("fp8_channel*",), "model.embed_tokens": NO},
    ),
    "compressed: order is the document's": (
        compressed("pack-quantized", group(["Linear"], **INT8), group([GATE], **INT4)),
        {GATE: ("int8_g64*",)},
    ),
    "compressed: ignore beats targets, expressions start at the start": (
        compressed("pack-quantized", group([GATE, r"re:mlp\."], **INT4), ignore=[GATE, r"re:self_attn"]),
        {GATE: NO, LAYER + "mlp.up_proj": NO},
    ),
    "compressed: a class": (
        compressed("pack-quantized", group(["Embedding"], **INT8)),
        {"model.embed_tokens": ("int8_g64*",), GATE: NO},
    ),
    **{
        f"compressed: {name}": (compressed(name, group(["Linear"], **weights)), {GATE: (tag,)})
        for name, weights, tag in (
            ("nvfp4-pack-quantized", {"num_bits": 4, "strategy": "tensor_group", "group_size": 16}, "nvfp4_divisor"),
            ("mxfp4-pack-quantized", {"num_bits": 4, "strategy": "group", "group_size": 32}, "mxfp4_packed"),
            ("mxfp8-quantized", {"num_bits": 8, "strategy": "group", "group_size": 32}, "mxfp8"),
            ("float-quantized", {"num_bits": 8, "strategy": "tensor"}, "fp8_tensor*"),
            ("pack-quantized", {"num_bits": 8, "strategy": "channel"}, "int8_g*"),
        )
    },
    # one of a kind
    "mxfp4": (
        {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
        {LAYER + "mlp.experts.gate_up_proj": ("mxfp4_blocks",), Q: NO, "lm_head": NO},
    ),
    "dgpp_mixed": (
        {**FP8, "quant_method": "dgpp_mixed", "routed_experts": {"format": "nvfp4-pack-quantized", **EXPERTS}},
        {EXPERT: ("nvfp4_divisor",), "model.layers.2.mlp.experts.0.up_proj": BLOCKS, GATE: BLOCKS, Q: BLOCKS},
    ),
    "dgpp_nf4i8": (
        {"quant_method": "dgpp_nf4i8", "version": 1, "routed_experts": EXPERTS, "baseline": compressed(
            "pack-quantized", group([r"re:.*self_attn"], **INT8)
        )},
        {EXPERT: ("nf4i8",), "model.layers.78.mlp.experts.0.up_proj": NO, Q: ("int8_g64*",)},
    ),
    # gptq
    "gptq": ({**GPTQ}, {GATE: ("gptq_int4_g128",), "lm_head": NO, "model.embed_tokens": NO}),
    "gptq: the head": ({**GPTQ, "lm_head": True}, {"lm_head": ("gptq_int4_g128",)}),
    "gptq: the first rule counts": (
        {
            **GPTQ,
            "dynamic": {
                r"+:.*\.3\.mlp\.gate": {"bits": 8, "group_size": 32},
                r"-:.*\.mlp\.": {},
                r"-:.*gate": {},
                "+:lm_head": {"bits": 8},
            },
        },
        {GATE: ("gptq_int8_g32",), LAYER + "mlp.up_proj": NO, Q: ("gptq_int4_g128",), "lm_head": ("gptq_int8_g128",)},
    ),
    "gptq: only some": (
        {**GPTQ, "modules_in_block_to_quantize": [["self_attn.q_proj"]]},
        {Q: ("gptq_int4_g128",), GATE: NO},
    ),
    "gptq: act-order may make no difference": (
        {**GPTQ, "desc_act": True},
        {GATE: ("gptq_int4_g128", "gptq_int4_g128_act")},
    ),
    "gptq: all of K": ({**GPTQ, "group_size": -1}, {GATE: ("gptq_int4_g*",)}),
    "gptq: versions": ({**GPTQ, "sym": False, "checkpoint_format": "gptq_v2"}, {GATE: (
        "gptq_int4_g128_asym_v2", "gptq_int4_g128_asym_v2_act"
    )}),
    "auto-round: by name": (
        {
            "quant_method": "auto-round",
            "packing_format": "auto_round:auto_gptq",
            "bits": 4,
            "group_size": 32,
            "sym": False,
            "extra_config": {Q: {"bits": 16}, r".*\.mlp\.gate$": {"bits": 8, "sym": True}},
        },
        {Q: NO, LAYER + "mlp.gate": ("gptq_int8_g32",), GATE: ("gptq_int4_g32_asym_v1", "gptq_int4_g32_asym_v1_act")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SAYS)
def test_what_a_config_says(tmp_path: Path, case: str) -> None:
    quantization, expected = SAYS[case]
    scheme = scheme_of(tmp_path, quantization or None)
    assert {module: scheme.formats(module) for module in expected} == expected


def test_modelopt_in_a_file_of_its_own_and_in_both(tmp_path: Path) -> None:
    exported = {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"], "kv_cache_quant_algo": "FP8"}}
    alone = scheme_of(tmp_path / "alone", None, {"hf_quant_config.json": exported})
    assert (alone.formats(GATE), alone.formats("lm_head"), alone.kv_cache) == (("nvfp4",), NO, "FP8")
    coded = {"quant_algo": "NVFP4", "group_size": 16, "weight_scale_encoding": "csf"}
    layered = {"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": {GATE: coded}}}
    both = scheme_of(tmp_path / "both", NVFP4, {"hf_quant_config.json": layered})
    assert both.formats(GATE) == ("nvfp4", "nvfp4_csf")
    assert both.formats(Q) == ("nvfp4", *NO)


def test_older_gptq_has_a_file_of_its_own(tmp_path: Path) -> None:
    fields = {"bits": 8, "group_size": 64, "sym": True, "desc_act": False}
    assert scheme_of(tmp_path, None, {"quantize_config.json": fields}).formats(GATE) == ("gptq_int8_g64",)


def test_exl3_lists_what_is_stored_how(tmp_path: Path) -> None:
    storage = {
        GATE: {"quant_format": "exl3", "bits_per_weight": 3.5, "mul1_multiplier": 1},
        Q: {"quant_format": "exl3", "bits_per_weight": 4},
        "lm_head": {"quant_format": None},
    }
    config = {"quant_method": "exl3", "bits": 3.7, "original_quantization_config": FP8}
    scheme = scheme_of(tmp_path / "listed", config, {"quantization_config.json": {"tensor_storage": storage}})
    assert scheme.formats(GATE) == ("exl3_3.5_mul1", "exl3_3.5_mul1_su")
    assert scheme.formats(Q) == ("exl3_4_*", "exl3_4_*_su")
    assert scheme.formats(LAYER + "self_attn.k_proj") == BLOCKS
    unlisted = scheme_of(tmp_path / "unlisted", {"quant_method": "exl3", "bits": 3})
    assert unlisted.formats(GATE) == ("exl3_*", *NO)


@pytest.mark.parametrize("inlined", [True, False])
def test_mixed346_has_a_form_for_every_expert(tmp_path: Path, inlined: bool) -> None:
    baseline = compressed("pack-quantized", group([r"re:.*experts"], **INT4), group([r"re:.*self_attn"], **INT8))
    recipe = {"layer_expert_recipes": {"3": ["334", "446", "existing"], "4": {"0": "666"}}}
    config: dict[str, Any] = {"quant_method": "dgpp_mixed346"}
    files = {} if inlined else {"quantization-recipe.json": recipe, "baseline-quantization-config.json": baseline}
    scheme = scheme_of(tmp_path, {**config, **({"recipe": recipe, "baseline": baseline} if inlined else {})}, files)

    def experts(layer: int, expert: int) -> list[tuple[str, ...]]:
        names = ("gate", "up", "down")
        return [scheme.formats(f"model.layers.{layer}.mlp.experts.{expert}.{name}_proj") for name in names]

    assert experts(3, 0) == [("mixed346_3",), ("mixed346_3",), ("mixed346_4",)]
    assert experts(3, 1) == [("mixed346_4",), ("mixed346_4",), ("mixed346_6",)]
    assert experts(3, 2) == experts(3, 9) == [("int4_g64*",)] * 3
    assert experts(4, 0) == [("mixed346_6",)] * 3
    assert scheme.formats(Q) == ("int8_g64*",)


def test_a_nested_config_and_an_older_key_are_found(tmp_path: Path) -> None:

    nested = checkpoint_of(tmp_path / "a", {"x": "bf16"}, shape=(2, 2), text_config={"quantization_config": FP8})
    assert read_scheme(nested).formats(GATE) == BLOCKS
    older = checkpoint_of(
        tmp_path / "b", {"x": "bf16"}, shape=(2, 2), compression_config=SAYS["compressed: a class"][0]
    )
    assert read_scheme(older).method == "compressed-tensors"


def test_W1_a_fused_module_is_known_by_its_own_name_and_by_its_parts(tmp_path: Path) -> None:
    by_parts = {**NVFP4, "ignore": [Q, LAYER + "self_attn.k_proj", LAYER + "self_attn.v_proj"]}
    by_whole = {**NVFP4, "ignore": [LAYER + "self_attn.qkv_proj"]}
    for i, config in enumerate((by_parts, by_whole)):
        assert set(NO) <= set(scheme_of(tmp_path / str(i), config).declared(LAYER + "self_attn.qkv_proj"))
    assert scheme_of(tmp_path / "2", NVFP4).declared(LAYER + "mlp.gate_up_proj") == ("nvfp4",)


@pytest.mark.parametrize(
    ("quantization", "words"),
    [
        ({"quant_method": "awq"}, rf"quant_method 'awq' is not supported; supported: {', '.join(METHODS)}"),
        ({"bits": 4}, "quant_method '' is not supported"),
        ({"quant_method": 4}, "quant_method must be a string, got 4"),
        ({**FP8, "weight_block_size": [128]}, r"weight_block_size must be two positive integers, got \[128\]"),
        ({**FP8, "fmt": "e5m2"}, "fmt 'e5m2' is not supported"),
        ({**FP8, "store_dtype": "int3"}, "store_dtype 'int3' is not supported"),
        ({**FP8, "expert_dtype": "fp6"}, "expert_dtype 'fp6' is not supported"),
        ({**FP8, "ignored_layers": ["["]}, "is not a regular expression"),
        ({**FP8, "ignored_layers": [3]}, r"ignored_layers must be a list of names, got \[3\]"),
        ({**NVFP4, "quant_algo": "W4A16_AWQ"}, "quant_algo 'W4A16_AWQ' is not supported"),
        ({**NVFP4, "pre_quant_scale": True}, "pre_quant_scale is not supported"),
        ({**NVFP4, "group_size": 32}, "group_size 32 is not supported for NVFP4; it is 16"),
        ({**MIXED, "quantized_layers": {Q: {"quant_algo": "NVFP4", "weight_scale_encoding": "zip"}}}, "encoding 'zip'"),
        (compressed("marlin-24", group(["Linear"], **INT4)), "format 'marlin-24' with strategy 'group' is not"),
        (compressed("int-quantized", group(["Linear"], **CHANNEL)), "format 'int-quantized'"),
        (compressed("pack-quantized", group(["Linear"], **{**INT4, "symmetric": False})), "symmetric=false"),
        (compressed("pack-quantized", group(["Linear"], **{**INT4, "num_bits": 3})), "num_bits 3 is not supported"),
        (compressed("nvfp4-pack-quantized", group(["Linear"], group_size=32)), "group_size 32 is not supported"),
        (compressed("dense", sparsity_config={"format": "sparse-24-bitmask"}), "sparsity_config 'sparse-24-bitmask'"),
        (compressed("dense", transform_config={"config_groups": {"u": {}}}), "transform_config is not supported"),
        ({**GPTQ, "bits": 3}, "bits 3 is not supported for GPTQ weights; supported: 4, 8"),
        ({**GPTQ, "bits": None}, "bits must be an integer, got None"),
        ({**GPTQ, "sym": "yes"}, "sym must be true or false, got 'yes'"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "weights packed as 'marlin' are not supported"),
        ({**GPTQ, "packing_format": "auto_round:auto_awq"}, "'auto_round:auto_awq' are not supported"),
        ({**GPTQ, "data_type": "mx_fp"}, "data_type 'mx_fp' is not supported"),
        ({**GPTQ, "dynamic": {"+:(": {}}}, "is not a regular expression"),
        ({"quant_method": "dgpp_nf4i8", "version": 2}, "version 2 is not supported; supported: 1"),
        ({"quant_method": "dgpp_nf4i8"}, "layers is missing"),
        ({"quant_method": "dgpp_nf4i8", "routed_experts": {"layers": "all"}}, "layers must be a list of layer numbers"),
        ({"quant_method": "dgpp_mixed346"}, "quantization-recipe.json is missing"),
        ({"quant_method": "dgpp_mixed", "routed_experts": {"format": "gif", **EXPERTS}}, "format 'gif' is not"),
    ],
)
def test_W11_what_is_not_supported_is_refused_by_name(tmp_path: Path, quantization: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words) as caught:
        scheme_of(tmp_path, quantization).formats(GATE)
    assert str(tmp_path) in str(caught.value)


def test_a_form_that_is_no_form_names_its_expert(tmp_path: Path) -> None:
    config = {"quant_method": "dgpp_mixed346", "recipe": {"layer_expert_recipes": {"3": ["335"]}}}
    scheme = scheme_of(tmp_path, config)
    with pytest.raises(CheckpointError, match=r"layers\.3\.mlp\.experts\.0\.up_proj is '335', not three digits"):
        scheme.formats(LAYER + "mlp.experts.0.up_proj")
