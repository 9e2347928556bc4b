"""The Qwen3.5 and Qwen3.8 hybrid releases in miniature: the plain ones, and the quantised layouts that are published.

Sizes of the plain ones are those on which the equations were compared with transformers. The others repeat a published
release's config and tensor names on sizes that its format can hold and four ranks can cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgpp.models.family import Release

ROPE = {
    "rope_type": "default",
    "rope_theta": 1e7,
    "partial_rotary_factor": 0.25,
    "mrope_section": [2, 1, 1],
    "mrope_interleaved": True,
}
TEXT: dict[str, Any] = {
    "model_type": "qwen3_5_text",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "full_attention_interval": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "mamba_ssm_dtype": "float32",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_parameters": ROPE,
    "max_position_embeddings": 512,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": False,
}
EXPERTS: dict[str, Any] = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
}
"""A mixture of experts that every test can afford."""

DENSE = {**TEXT, "intermediate_size": 96, "output_gate_type": "swish"}
MOE = {**TEXT, **EXPERTS, "model_type": "qwen3_5_moe_text", "linear_num_value_heads": 8}


VISION = {
    "depth": 2,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 2,
    "in_channels": 3,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "num_position_embeddings": 16,
    "hidden_act": "gelu_pytorch_tanh",
}
TOKENS = {"image_token_id": 4, "video_token_id": 5, "vision_start_token_id": 6, "vision_end_token_id": 7}


def dense(text: Mapping[str, Any], quantization: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The config.json of a dense release."""
    return config_of("Qwen3_5ForConditionalGeneration", "qwen3_5", text, quantization)


def moe(text: Mapping[str, Any], quantization: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The config.json of a release with experts."""
    return config_of("Qwen3_5MoeForConditionalGeneration", "qwen3_5_moe", text, quantization)


def config_of(
    architecture: str, model_type: str, text: Mapping[str, Any], quantization: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The config.json of an architecture: text part, a small vision part, and quantization if there is any."""
    vision = {**VISION, "out_hidden_size": text["hidden_size"]}
    config: dict[str, Any] = {"architectures": [architecture], "model_type": model_type, "text_config": dict(text)}
    config |= {"vision_config": vision, **TOKENS, "tie_word_embeddings": False}
    return config if quantization is None else {**config, "quantization_config": dict(quantization)}


PLAIN = (Release("tiny-dense", dense(DENSE), shards=2), Release("tiny-moe", moe(MOE)))

# --- quantised ------------------------------------------------------------------------------------------------------

WIDE: dict[str, Any] = {
    "hidden_size": 256,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "head_dim": 64,
    "rope_parameters": {**ROPE, "mrope_section": [4, 2, 2]},
}
"""Four leaves of 128 in every direction that is cut."""

LINEARS = r"linear_attn\.(in_proj_qkv|in_proj_z|out_proj)|self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj"

BLOCK_FP8: dict[str, Any] = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
    "modules_to_not_convert": ["lm_head", "mtp.fc", r".*linear_attn\.(conv1d|in_proj_[ab])"],
}
_NVFP4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True}
_FP8 = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
_UNSLOTH = {
    "quant_method": "compressed-tensors",
    "format": "mixed-precision",
    "quantization_status": "compressed",
    "config_groups": {
        "group_0": {
            "targets": [r"re:.*layers\.[0-2]\.mlp\..*_proj$"],
            "format": "nvfp4-pack-quantized",
            "weights": _NVFP4,
        },
        "group_1": {
            "targets": [
                r"re:.*linear_attn\.(in_proj_qkv|in_proj_z|out_proj)$",
                r"re:.*self_attn\.[qkvo]_proj$",
                r"re:.*layers\.3\.mlp\..*_proj$",
                "lm_head",
            ],
            "format": "float-quantized",
            "weights": _FP8,
        },
    },
    # A name that is a prefix of targeted ones, which it does not exclude.
    "ignore": ["model.language_model.layers.0.linear_attn", r"re:^mtp.*"],
}
MODELOPT_NVFP4: dict[str, Any] = {
    "quant_method": "modelopt",
    "quant_algo": "NVFP4",
    "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}}
    },
    "ignore": [
        "lm_head",
        "mtp*",
        "model.language_model.layers.*.linear_attn*",
        "model.language_model.layers.*.self_attn*",
        "model.language_model.layers.*.mlp.gate",
        "model.language_model.layers.*.mlp.shared_expert*",
    ],
    "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
    "producer": {"name": "modelopt", "version": "0.47.0"},
}
_KV_SCALES = tuple(f"model.language_model.layers.3.self_attn.{name}_scale" for name in "kv")

QUANTIZED = (
    # Qwen/Qwen3.8-27B-FP8
    Release(
        "27b-fp8", dense({**DENSE, **WIDE, "intermediate_size": 512}, BLOCK_FP8), 2, ((LINEARS, "fp8_block128_bf16"),)
    ),
    # unsloth/Qwen3.8-27B-NVFP4: the last layers' MLP stays FP8
    Release(
        "27b-nvfp4",
        dense({**DENSE, **WIDE, "intermediate_size": 512}, _UNSLOTH),
        2,
        (
            ("^mtp", "bf16"),
            (r"layers\.[0-2]\.mlp\.\w+_proj", "nvfp4_divisor"),
            (rf"{LINEARS}|lm_head", "fp8_channel"),
        ),
        optional=frozenset({"input_scale"}),
        scalars=_KV_SCALES,
    ),
    # nvidia/Qwen3.5-122B-A10B-NVFP4: routed experts alone
    Release(
        "122b-nvfp4",
        moe({**MOE, **WIDE, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64}, MODELOPT_NVFP4),
        2,
        (("^mtp", "bf16"), (r"mlp\.experts\.", "nvfp4")),
        optional=frozenset({"input_scale"}),
    ),
)

RELEASES = {release.name: release for release in (*PLAIN, *QUANTIZED)}
