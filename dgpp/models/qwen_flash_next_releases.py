"""The Qwen3.8-Flash-Next releases in miniature: a plain one, and the quantised layouts that are published.

The quantised ones have one layer of each kind, and experts 640 wide as published, so that FP8 blocks of 128 do not end
where four ranks cut. Of the last two releases only the forms of the weights are known; their tensors are named here as
those of their siblings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgpp.models.family import Release
from dgpp.models.qwen35_releases import BLOCK_FP8, EXPERTS, MODELOPT_NVFP4, TEXT, WIDE, config_of

NEXT: dict[str, Any] = {
    **TEXT,
    **EXPERTS,
    "model_type": "qwen4_exp_text",
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "qwen_sparse_attention"],
    "output_gate_type": "sigmoid",
    "norm_topk_prob": True,
    "hc_count": 4,
    "hc_lowrank": 16,
    "indexer_n_heads": 2,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 8,
    "indexer_compress_ratio": 4,
    "ple_layer_ids": [2],
    "ple_embed_dim": 64,
    "ple_conv_kernel_size": 4,
    "ngram_size": 3,
    "heads_per_ngram": 2,
    "ngram_vocab_size_base": 100,
    "make_ngram_vocab_size_divisible_by": 8,
    "split_ngram_parts": 4,
    "seed": 1234,
}


def flash_next(text: Mapping[str, Any], quantization: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The config.json of a release."""
    return config_of("Qwen4ExpForConditionalGeneration", "qwen4_exp", text, quantization)


PLAIN = (Release("tiny", flash_next(NEXT), shards=2),)

# --- quantised ------------------------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {
    **{key: value for key, value in NEXT.items() if key != "full_attention_interval"},
    **WIDE,
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "qwen_sparse_attention"],
    "num_experts": 4,
    "moe_intermediate_size": 640,
    "shared_expert_intermediate_size": 640,
    "hc_lowrank": 32,
    "ple_embed_dim": 256,
}

MIXERS = r"linear_attn\.(in_proj_qkv|in_proj_z|out_proj)|self_attn\.[qkvo]_proj"
EXPERT, SHARED = r"mlp\.experts\.\d+\.\w+_proj", r"mlp\.shared_expert\.\w+_proj"
TABLE = "ngram_embedding"
FP8_TABLE = (TABLE, "fp8_tensor")
FP8_DRAFT = (rf"^mtp\..*{EXPERT}", "fp8_block128_bf16")

FP8 = {
    **BLOCK_FP8,
    "modules_to_convert": [TABLE],
    "modules_to_not_convert": [
        "lm_head",
        r"mtp\.fc_\w+",
        r".*\.(linear_attn|self_attn|shared_expert|shared_expert_gate)",
        r".*\.mlp\.gate",
        r".*hyper_connection(_mixer)?",
        r".*\.ple\.(key_proj|value_proj|conv1d)",
    ],
}
NVFP4 = {
    **MODELOPT_NVFP4,
    "ignore": [
        *MODELOPT_NVFP4["ignore"],
        "*hyper_connection*",
        "model.language_model.layers.*.ple.*",
    ],
}
AUTOROUND: dict[str, Any] = {
    "quant_method": "gptq",
    "bits": 4,
    "group_size": 128,
    "sym": True,
    "desc_act": False,
    "lm_head": True,
    "checkpoint_format": "gptq",
    "provider": "auto-round",
    # The draft layer is numbered after the last of the model's layers.
    "dynamic": {
        f"-:.*{name}.*": {}
        for name in (
            *("linear_attn", "self_attn", "hyper_connection", "visual", "shared_expert", "ple", "embed", "fc_hidden"),
            *(r"layers\.2\.", r"\.gate$"),
        )
    },
}
HYBRID = {
    **AUTOROUND,
    "dynamic": {
        "+:lm_head": {"bits": 8},
        **{rule: entry for rule, entry in AUTOROUND["dynamic"].items() if "layers" not in rule},
    },
}


def mixed(*parts: tuple[str, Mapping[str, Any]], draft: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A modelopt config with a format for each of some modules, or for all that they enclose, in both layers; and one
    for the experts of the draft layer."""
    layers = {f"model.language_model.layers.{layer}.{name}": dict(entry) for layer in (0, 1) for name, entry in parts}
    if draft is not None:
        layers["mtp.layers.0.mlp.experts"] = dict(draft)
    return {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": layers,
        "ignore": ["lm_head", "*.conv1d", "*.in_proj_[ab]", "*.indexer.*"],
        "producer": MODELOPT_NVFP4["producer"],
    }


_FP4, _MXFP8 = {"quant_algo": "NVFP4", "group_size": 16}, {"quant_algo": "MXFP8", "group_size": 32}
_MX_PARTS = (("self_attn", _MXFP8), ("linear_attn", _MXFP8), ("mlp.shared_expert", _MXFP8))
_NGRAMS = (f"ple.ple_embedding.{TABLE}", _FP4)

QUANTIZED = (
    # Qwen/Qwen3.8-Flash-Next-FP8
    Release("fp8", flash_next(SMALL, FP8), 3, ((EXPERT, "fp8_block128_bf16"), FP8_TABLE)),
    # nvidia/Qwen3.8-Flash-Next-NVFP4: table and draft layer as in the FP8 release, which the config does not say
    Release(
        "nvfp4",
        flash_next(SMALL, NVFP4),
        2,
        (FP8_DRAFT, (EXPERT, "nvfp4"), FP8_TABLE),
        optional=frozenset({"input_scale"}),
    ),
    # RadixArk/Qwen3.8-Flash-Next-NVFP4: the draft layer's experts are fused
    Release(
        "nvfp4-fused-draft",
        flash_next(SMALL, NVFP4),
        2,
        (
            (r"^mtp\..*experts\.(gate_up|down)_proj$", "bf16_bare"),
            (rf"language_model.*{EXPERT}", "nvfp4"),
            FP8_TABLE,
        ),
        optional=frozenset({"input_scale"}),
    ),
    # azampatti/Qwen3.8-Flash-Next-INT4-AutoRound
    Release(
        "int4-autoround",
        flash_next(SMALL, AUTOROUND),
        2,
        ((rf"language_model.*{EXPERT}|lm_head", "gptq_int4_g128"), FP8_TABLE),
    ),
    # Saren/Qwen3.8-Flash-Next-W4A16-AutoRound-hybrid-MTP_int4RTN: its table is that of the FP8 release
    Release(
        "int4-hybrid",
        flash_next(SMALL, HYBRID),
        2,
        (
            (EXPERT, "gptq_int4_g128"),
            ("lm_head", "gptq_int8_g128"),
            (rf"language_model.*({MIXERS}|{SHARED})", "fp8_block128"),
        ),
        without=r"\.ple_embedding\.",
    ),
    # local-inference-lab's export after quantisation-aware distillation
    Release(
        "nvfp4-mxfp8",
        flash_next(SMALL, mixed(("mlp.experts", _FP4), _NGRAMS, *_MX_PARTS, draft=_FP4)),
        2,
        (
            (rf"{EXPERT}|{TABLE}", "nvfp4"),
            (rf"language_model.*({MIXERS}|{SHARED})", "mxfp8"),
            (r"norm(_key|_query|_conv|_embedding|_hidden)?$", "f32"),
        ),
        optional=frozenset({"input_scale"}),
    ),
    # nvidia/Qwen3.8-Flash-Next-FP4-Local: the experts' block scales are coded
    Release(
        "fp4-local",
        flash_next(SMALL, mixed(("mlp.experts", {**_FP4, "weight_scale_encoding": "csf"}), _NGRAMS, *_MX_PARTS)),
        2,
        (
            (rf"language_model.*{EXPERT}", "nvfp4_csf"),
            (TABLE, "nvfp4"),
            (rf"language_model.*({MIXERS}|{SHARED})", "mxfp8"),
        ),
        optional=frozenset({"input_scale"}),
    ),
)

RELEASES = {release.name: release for release in (*PLAIN, *QUANTIZED)}
