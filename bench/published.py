"""The configs of the published Qwen checkpoints, as far as they shape the model, and how each release stores it.

Values: spec/models_qwen.md §1.1, transcribed from the releases' config.json files.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dgpp.checkpoint.fixture import stored_tree
from dgpp.checkpoint.spec import SpecTree

_TEXT: dict[str, Any] = {
    "vocab_size": 248320,
    "rms_norm_eps": 1e-6,
    "head_dim": 256,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_section": [11, 11, 10],
        "mrope_interleaved": True,
    },
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
    "max_position_embeddings": 262144,
    "mamba_ssm_dtype": "float32",
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
    "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": False,
    "eos_token_id": 248044,
}


def _config(architecture: str, **text: Any) -> dict[str, Any]:
    return {"architectures": [architecture], "text_config": {**_TEXT, **text}}


QWEN38_27B = _config(
    "Qwen3_5ForConditionalGeneration",
    hidden_size=5120,
    num_hidden_layers=64,
    num_attention_heads=24,
    num_key_value_heads=4,
    linear_num_value_heads=48,
    intermediate_size=17408,
    output_gate_type="swish",
)
QWEN35_122B = _config(
    "Qwen3_5MoeForConditionalGeneration",
    hidden_size=3072,
    num_hidden_layers=48,
    num_attention_heads=32,
    num_key_value_heads=2,
    linear_num_value_heads=64,
    num_experts=256,
    num_experts_per_tok=8,
    moe_intermediate_size=1024,
    shared_expert_intermediate_size=1024,
)
FLASH_NEXT = _config(
    "Qwen4ExpForConditionalGeneration",
    hidden_size=2560,
    num_hidden_layers=48,
    num_attention_heads=24,
    num_key_value_heads=2,
    linear_num_value_heads=48,
    output_gate_type="sigmoid",
    num_experts=512,
    num_experts_per_tok=10,
    moe_intermediate_size=640,
    shared_expert_intermediate_size=640,
    norm_topk_prob=True,
    hc_count=4,
    hc_lowrank=320,
    indexer_n_heads=4,
    indexer_kv_heads=1,
    indexer_head_dim=128,
    indexer_budget=2048,
    indexer_compress_ratio=4,
    ple_layer_ids=[2],
    ple_embed_dim=2560,
    ple_conv_kernel_size=4,
    ngram_size=3,
    heads_per_ngram=8,
    ngram_vocab_size_base=20000000,
    make_ngram_vocab_size_divisible_by=128,
    split_ngram_parts=128,
    mtp={"hybrid": True, "layer_types": ["full_attention"], "num_hidden_layers": 1, "rope_theta": 1e7},
)

LINEARS = r"linear_attn\.(in_proj_qkv|in_proj_z|out_proj)$|self_attn\.[qkvo]_proj$|mlp\.(gate|up|down)_proj$"
FORMATS = {
    "Qwen/Qwen3.8-27B-FP8": ((LINEARS, "fp8_block128_bf16"),),
    "unsloth/Qwen3.8-27B-NVFP4": (
        ("^mtp", "bf16"),
        (r"layers\.([0-9]|[1-4][0-9]|5[0-5])\.mlp\.", "nvfp4_divisor"),
        (rf"{LINEARS}|lm_head", "fp8_channel"),
    ),
    "nvidia/Qwen3.5-122B-A10B-NVFP4": (("^mtp", "bf16"), (r"mlp\.experts\.", "nvfp4")),
    "Qwen/Qwen3.8-Flash-Next-FP8": (
        (r"mlp\.experts\.", "fp8_block128_bf16"),
        (r"ngram_embedding", "fp8_tensor"),
    ),
    "nvidia/Qwen3.8-Flash-Next-NVFP4": (
        (r"^mtp.*mlp\.experts\.", "fp8_block128_bf16"),
        (r"mlp\.experts\.", "nvfp4"),
        (r"ngram_embedding", "fp8_tensor"),
    ),
}
"""The format of each module by the first expression that is found in its name; others are BF16."""

RELEASES = {
    "27b-fp8": ("Qwen/Qwen3.8-27B-FP8", QWEN38_27B),
    "27b-nvfp4": ("unsloth/Qwen3.8-27B-NVFP4", QWEN38_27B),
    "122b-nvfp4": ("nvidia/Qwen3.5-122B-A10B-NVFP4", QWEN35_122B),
    "flash-next-fp8": ("Qwen/Qwen3.8-Flash-Next-FP8", FLASH_NEXT),
    "flash-next-nvfp4": ("nvidia/Qwen3.8-Flash-Next-NVFP4", FLASH_NEXT),
}
"""(release in FORMATS, config) by the name that benchmarks call it."""


def as_released(tree: SpecTree, release: str) -> SpecTree:
    """`tree` in the formats in which a release of FORMATS stores it."""
    return stored_tree(tree, SimpleNamespace(formats=FORMATS[release]))  # type: ignore[arg-type]
