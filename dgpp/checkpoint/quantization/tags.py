"""The one table from the names that configs give to weight formats to our tags.

A value is a pattern with the wildcards of a shell, since a config rarely says everything: the dtype of a scale, say, is
in the tensors alone. Fields in braces come from the same entry of the config.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from typing import Any

Tags = tuple[str, ...]
"""Patterns of tags; a weight stored in any of them agrees with the config."""

UNQUANTIZED: Tags = ("bf16", "bf16_bare", "f16", "f16_bare", "f32", "f32_bare")

ALIASES: dict[str, str] = {
    # modelopt: `quant_algo`
    "NVFP4": "nvfp4",
    "W4A16_NVFP4": "nvfp4",
    "NVFP4/csf": "nvfp4_csf",
    "W4A16_NVFP4/csf": "nvfp4_csf",
    "MXFP4": "mxfp4",
    "MXFP4/csf": "mxfp4_csf",
    "W4A8_MXFP4_FP8": "mxfp4",
    "MXFP8": "mxfp8",
    "FP8": "fp8_tensor*",
    # compressed-tensors: `format`, with the strategy of the weights where it matters
    "nvfp4-pack-quantized": "nvfp4_divisor",
    "mxfp4-pack-quantized": "mxfp4_packed",
    "mxfp8-quantized": "mxfp8",
    "float-quantized/channel": "fp8_channel*",
    "float-quantized/tensor": "fp8_tensor*",
    "pack-quantized/group": "int{num_bits}_g{group_size}*",
    "pack-quantized/channel": "int{num_bits}_g*",
    # fp8: `store_dtype` and `expert_dtype`
    "store mxfp4": "mxfp4",
    "expert fp4": "mxfp4_deepseek",
    # one format each
    "gpt-oss mxfp4": "mxfp4_blocks",
    "exl3": "exl3_*",
    "dgpp_nf4i8": "nf4i8",
    "dgpp_mixed346": "mixed346_{bits}",
}


def alias(name: str, **fields: Any) -> str | None:
    """The pattern of tags that a config's `name` stands for; None when the table does not have it."""
    pattern = ALIASES.get(name)
    return None if pattern is None else pattern.format(**fields)


def agrees(tag: str, patterns: Iterable[str]) -> bool:
    """Whether a tag matches one of the patterns."""
    return any(fnmatch.fnmatchcase(tag, pattern) for pattern in patterns)
