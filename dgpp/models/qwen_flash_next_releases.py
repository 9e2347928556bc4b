"""The Qwen3.8-Flash-Next releases in miniature: a plain one, and the quantised layouts that are published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgpp.models.family import Release
from dgpp.models.qwen35_releases import EXPERTS, TEXT, config_of

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

RELEASES = {release.name: release for release in PLAIN}
