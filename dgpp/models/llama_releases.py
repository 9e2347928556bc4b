"""The llama releases in miniature: the plain ones, and one in every quantised layout that a dense model can have.

The quantised ones are copies of how published releases look, in config and tensor names, put on a small Llama whose
sizes every format can hold and four ranks can cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgpp.models.family import Release

_TINY: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "torch_dtype": "bfloat16",
}
_NINE_HEADS = {"hidden_size": 144, "num_attention_heads": 9, "num_key_value_heads": 3, "tie_word_embeddings": True}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}

PLAIN = (
    Release("tiny", _TINY, shards=2),
    Release("tiny-tied", {**_TINY, "tie_word_embeddings": True}),
    Release("tiny-9x3", {**_TINY, **_NINE_HEADS}),
    Release("tiny-llama3-rope", {**_TINY, "rope_scaling": _LLAMA3_ROPE}),
)

# --- quantised ------------------------------------------------------------------------------------------------------

_SIZES = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 128, "num_hidden_layers": 2}
"""Four leaves of 128 in every direction that is cut."""

_ATTENTION, _MLP = r"self_attn\.[qkvo]_proj", r"mlp\.\w+_proj"
_LINEAR = rf"{_ATTENTION}|{_MLP}"


def _quantized(
    name: str,
    quantization: Mapping[str, Any] | None,
    formats: tuple[tuple[str, str], ...],
    layers: int = 2,
    **more: Any,
) -> Release:
    config = {**_TINY, **_SIZES, "num_hidden_layers": layers}
    if quantization is not None:
        config["quantization_config"] = dict(quantization)
    return Release(name, config, formats=formats, **more)


def _fp8(**fields: Any) -> dict[str, Any]:
    return {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head"],
        **fields,
    }


def _group(targets: list[str], format: str | None = None, **weights: Any) -> dict[str, Any]:
    group: dict[str, Any] = {"targets": targets, "input_activations": None, "output_activations": None}
    group["weights"] = {"symmetric": True, "dynamic": False, **weights}
    return group if format is None else {**group, "format": format}


def _compressed(format: str, *groups: Mapping[str, Any], ignore: tuple[str, ...] = ("lm_head",)) -> dict[str, Any]:
    return {
        "quant_method": "compressed-tensors",
        "format": format,
        "quantization_status": "compressed",
        "config_groups": {f"group_{i}": dict(group) for i, group in enumerate(groups)},
        "ignore": list(ignore),
        "kv_cache_scheme": None,
    }


_NVFP4: dict[str, Any] = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
_FP8_CHANNEL: dict[str, Any] = {"num_bits": 8, "type": "float", "strategy": "channel"}
_INT: dict[str, Any] = {"type": "int", "strategy": "group", "group_size": 64, "observer": "memoryless_minmax"}
_INT8_ATTENTION = _group([r"re:.*self_attn\..*_proj$"], num_bits=8, **_INT)
_INT4_MLP = _group([r"re:.*mlp\..*_proj$"], num_bits=4, **_INT)
_MODELOPT = {"producer": {"name": "modelopt", "version": "0.47.0"}}
_KV_SCALES = ("model.layers.{layer}.self_attn.k_proj.k_scale", "model.layers.{layer}.self_attn.v_proj.v_scale")

_FP8_RELEASES = (
    _quantized("fp8-block128", _fp8(), ((_LINEAR, "fp8_block128"),)),
    _quantized("fp8-bf16scale", _fp8(), ((_LINEAR, "fp8_block128_bf16"),)),
    _quantized(
        "fp8-ue8m0", _fp8(weight_block_size=[32, 32], scale_fmt="ue8m0"), ((_LINEAR, "fp8_block32_e8m0"),), shards=2
    ),
    _quantized(
        "fp8-channel",
        _compressed("float-quantized", _group(["Linear"], **_FP8_CHANNEL), ignore=()),
        ((rf"{_LINEAR}|lm_head", "fp8_channel"),),
        scalars=_KV_SCALES,
    ),
    _quantized(
        "mxfp8",
        {"quant_method": "modelopt", "quant_algo": "MXFP8", "ignore": ["lm_head"], **_MODELOPT},
        ((_LINEAR, "mxfp8"),),
    ),
)

_FP4_RELEASES = (
    _quantized(
        "nvfp4-modelopt",
        {
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "config_groups": {"group_0": _group(["Linear"], num_bits=4, type="float", group_size=16)},
            "ignore": ["lm_head", "model.layers.0.self_attn*", "model.layers.1.self_attn*"],
            "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
            **_MODELOPT,
        },
        ((_MLP, "nvfp4"),),
        optional=frozenset({"input_scale"}),
        scalars=_KV_SCALES,
    ),
    _quantized(
        "nvfp4-hf-quant-config",
        None,
        ((_LINEAR, "nvfp4"),),
        files={
            "hf_quant_config.json": {
                **_MODELOPT,
                "quantization": {
                    "quant_algo": "NVFP4",
                    "kv_cache_quant_algo": "FP8",
                    "group_size": 16,
                    "exclude_modules": ["lm_head"],
                },
            }
        },
        optional=frozenset({"input_scale"}),
    ),
    _quantized(
        "nvfp4-ct",
        _compressed(
            "mixed-precision",
            _group([r"re:.*layers\.[01]\.mlp\..*_proj$"], "nvfp4-pack-quantized", **_NVFP4),
            _group(["Linear"], "float-quantized", **_FP8_CHANNEL),
            ignore=(r"re:.*norm$",),
        ),
        ((rf"layers\.[01]\.{_MLP}", "nvfp4_divisor"), (rf"{_LINEAR}|lm_head", "fp8_channel")),
        layers=3,
        optional=frozenset({"input_scale"}),
    ),
    _quantized(
        "nvfp4-csf",
        {
            "quant_method": "modelopt",
            "quant_algo": "MIXED_PRECISION",
            "quantized_layers": {
                f"model.layers.{layer}.{name}": entry
                for layer in (0, 1)
                for name, entry in (
                    ("mlp", {"quant_algo": "NVFP4", "group_size": 16, "weight_scale_encoding": "csf"}),
                    ("self_attn", {"quant_algo": "MXFP8", "group_size": 32}),
                )
            },
            "ignore": ["lm_head"],
            **_MODELOPT,
        },
        ((_MLP, "nvfp4_csf"), (_ATTENTION, "mxfp8")),
        optional=frozenset({"input_scale"}),
    ),
    _quantized(
        "mxfp4",
        {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
        ((_MLP, "mxfp4_blocks"),),
    ),
    _quantized(
        "mxfp4-ct",
        _compressed(
            "mxfp4-pack-quantized",
            _group(["Linear"], num_bits=4, type="float", strategy="group", group_size=32),
        ),
        ((_LINEAR, "mxfp4_packed"),),
    ),
)

_INTEGER_RELEASES = (
    _quantized(
        "int4-int8-g64",
        _compressed("pack-quantized", _INT8_ATTENTION, _INT4_MLP),
        ((_ATTENTION, "int8_g64"), (_MLP, "int4_g64")),
    ),
    _quantized(
        "gptq-int4",
        {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 128,
            "sym": True,
            "desc_act": False,
            "lm_head": False,
            "checkpoint_format": "gptq",
        },
        ((_LINEAR, "gptq_int4_g128"), ("", "f16")),
        optional=frozenset({"g_idx"}),
    ),
    _quantized(
        "gptq-int4-asym",
        {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 64,
            "sym": False,
            "desc_act": False,
            "checkpoint_format": "gptq_v2",
        },
        ((_LINEAR, "gptq_int4_g64_asym_v2"),),
    ),
    _quantized(
        "autoround-hybrid",
        {
            "quant_method": "gptq",
            "bits": 4,
            "group_size": 128,
            "sym": True,
            "desc_act": False,
            "lm_head": True,
            "dynamic": {"+:lm_head": {"bits": 8}, r"-:.*self_attn\..*": {}},
            "provider": "auto-round",
        },
        # The attention was taken from an FP8 release, which the config does not say.
        ((_MLP, "gptq_int4_g128"), ("lm_head", "gptq_int8_g128"), (_ATTENTION, "fp8_block128")),
    ),
)

_CODEBOOK = {"format": "mixed-codebook-packed", "targets": [r"re:.*mlp\..*_proj$"]}
_BASELINE = _compressed("pack-quantized", _INT8_ATTENTION, _INT4_MLP)

_OTHER_RELEASES = (
    _quantized(
        "nf4i8",
        {
            "quant_method": "dgpp_nf4i8",
            "format": "mixed-codebook-packed",
            "version": 1,
            "routed_experts": {
                **_CODEBOOK,
                "input_transform": {"type": "normalized_hadamard", "block_size": 32},
            },
            "baseline": _BASELINE,
        },
        ((_MLP, "nf4i8"), (_ATTENTION, "int8_g64")),
    ),
    _quantized(
        "mixed346",
        {
            "quant_method": "dgpp_mixed346",
            "format": "dgpp_mixed346_h32_a8_g128_v1",
            "rotation_size": 32,
            "activation_bits": 8,
            "group_size": 128,
            "recipe_file": "quantization-recipe.json",
            "routed_experts": _CODEBOOK,
        },
        (
            (r"layers\.0\.mlp\.(gate|up)", "mixed346_3"),
            (r"layers\.0\.mlp\.down", "mixed346_4"),
            (r"layers\.1\.mlp\.(gate|up)", "mixed346_4"),
            (r"layers\.1\.mlp\.down", "mixed346_6"),
            (_MLP, "int4_g64"),
            (_ATTENTION, "int8_g64"),
        ),
        layers=3,
        files={
            "quantization-recipe.json": {"layer_recipes": {"0": "334", "1": "446", "2": "existing"}},
            "baseline-quantization-config.json": _BASELINE,
        },
    ),
    _quantized(
        "exl3",
        {
            "quant_method": "exl3",
            "version": "1.6.5",
            "bits": 3.25,
            "head_bits": 6,
            "codebook": "mul1",
            "out_scales": "auto",
        },
        ((rf"layers\.0\.({_LINEAR})", "exl3_3_mul1"), (_LINEAR, "exl3_3.5_mul1"), ("lm_head", "exl3_6_mul1")),
        files={
            "quantization_config.json": {
                "tensor_storage": {
                    module: {"quant_format": "exl3", "bits_per_weight": rate, "mul1_multiplier": 0x83DCD12D}
                    for module, rate in (
                        ("lm_head", 6),
                        *(
                            (f"model.layers.{layer}.{name}_proj", rate)
                            for layer, rate in ((0, 3), (1, 3.5))
                            for name in (
                                *(f"self_attn.{p}" for p in "qkvo"),
                                *(f"mlp.{p}" for p in ("gate", "up", "down")),
                            )
                        ),
                    )
                }
            }
        },
    ),
    _quantized(
        "mixed",
        {
            **_fp8(),
            "quant_method": "dgpp_mixed",
            "routed_experts": {
                "format": "nvfp4-pack-quantized",
                "group_size": 16,
                "num_bits": 4,
                "targets": [r"re:.*layers\.[12]\.mlp\..*_proj$"],
            },
            "dsa_attention": {"source": "base"},
            "mtp_layer": {"source": "base"},
        },
        ((rf"layers\.[12]\.{_MLP}", "nvfp4_divisor"), (_LINEAR, "fp8_block128")),
        layers=3,
    ),
)

QUANTIZED = (*_FP8_RELEASES, *_FP4_RELEASES, *_INTEGER_RELEASES, *_OTHER_RELEASES)

RELEASES = {release.name: release for release in (*PLAIN, *QUANTIZED)}
