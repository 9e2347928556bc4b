"""The `quantization_config` that says how a checkpoint's modules are stored: one dialect for every format tag.

The inverse of `dgpp.checkpoint.quantization` for checkpoints with one format: the dialect is that of the releases which
publish the format, so other engines read it as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgpp.formats import format_named
from dgpp.formats.exl3 import EXL3
from dgpp.formats.exl3_trellis import MARKERS
from dgpp.formats.fp8_block import FP8Block
from dgpp.formats.gptq import GPTQ
from dgpp.formats.mixed346 import Mixed346
from dgpp.formats.packed_int import PackedInt

UNQUANTIZED = ("bf16", "f16", "f32")
_FLOAT8: dict[str, Any] = {"num_bits": 8, "type": "float"}


@dataclass(frozen=True)
class Declaration:
    """`quantization_config` (None for a format that is none), and further JSON files by name."""

    config: dict[str, Any] | None
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def declare(tag: str, modules: Sequence[str], kept: Sequence[str]) -> Declaration:
    """How to say that `modules` are stored in format `tag` and the linears `kept` as they were.

    Raises ValueError when no release stores linears in this format.
    """
    format = format_named(tag)
    if tag in UNQUANTIZED:
        return Declaration(None)
    if isinstance(format, FP8Block) and format.block_rows > 1:
        return Declaration(_fp8(format, kept))
    if isinstance(format, PackedInt) and format.scale == "BF16":
        weights = {"num_bits": format.bits, "type": "int", "strategy": "group", "group_size": format.per_scale}
        return Declaration(_compressed("pack-quantized", weights, kept))
    if isinstance(format, GPTQ) and not format.act_order:
        return Declaration(_gptq(format, kept))
    if isinstance(format, EXL3):
        return _exl3(format, modules)
    if isinstance(format, Mixed346):
        return _mixed346(format, modules)
    if tag not in _BY_TAG:
        raise ValueError(f"no release stores linears as {tag}, so there is no config that says it")
    return Declaration(_BY_TAG[tag](modules, kept))


def _fp8(format: FP8Block, kept: Sequence[str]) -> dict[str, Any]:
    config = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [format.block_rows, format.block_columns],
        "modules_to_not_convert": list(kept),
    }
    return {**config, "scale_fmt": "ue8m0"} if format.scale == "E8M0" else config


def _compressed(format: str, weights: Mapping[str, Any], kept: Sequence[str]) -> dict[str, Any]:
    group = {
        "targets": ["Linear"],
        "weights": {"symmetric": True, "dynamic": False, **weights},
        "input_activations": None,
        "output_activations": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": format,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": list(kept),
        "kv_cache_scheme": None,
    }


def _modelopt(algorithm: str) -> Callable[[Sequence[str], Sequence[str]], dict[str, Any]]:
    return lambda modules, kept: {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": list(kept)}


def _coded(algorithm: str, group: int) -> Callable[[Sequence[str], Sequence[str]], dict[str, Any]]:
    entry = {"quant_algo": algorithm, "group_size": group, "weight_scale_encoding": "csf"}
    return lambda modules, kept: {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": dict.fromkeys(modules, entry),
        "ignore": list(kept),
    }


def _codebook(modules: Sequence[str]) -> dict[str, Any]:
    return {
        "format": "mixed-codebook-packed",
        "targets": [f"re:^(?:{'|'.join(map(re.escape, modules))})$"],
        "input_transform": {"type": "normalized_hadamard", "block_size": 32},
    }


_BY_TAG: dict[str, Callable[[Sequence[str], Sequence[str]], dict[str, Any]]] = {
    "fp8_channel": lambda modules, kept: _compressed("float-quantized", {**_FLOAT8, "strategy": "channel"}, kept),
    "fp8_channel_f32": lambda modules, kept: _compressed("float-quantized", {**_FLOAT8, "strategy": "channel"}, kept),
    "fp8_tensor": lambda modules, kept: _compressed("float-quantized", {**_FLOAT8, "strategy": "tensor"}, kept),
    "fp8_tensor_f32": lambda modules, kept: _compressed("float-quantized", {**_FLOAT8, "strategy": "tensor"}, kept),
    "nvfp4": _modelopt("NVFP4"),
    "nvfp4_csf": _coded("NVFP4", 16),
    "nvfp4_divisor": lambda modules, kept: _compressed(
        "nvfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}, kept
    ),
    "mxfp4": _modelopt("MXFP4"),
    "mxfp4_csf": _coded("MXFP4", 32),
    "mxfp4_packed": lambda modules, kept: _compressed(
        "mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}, kept
    ),
    "mxfp4_blocks": lambda modules, kept: {"quant_method": "mxfp4", "modules_to_not_convert": list(kept)},
    "mxfp8": _modelopt("MXFP8"),
    "nf4i8": lambda modules, kept: {
        "quant_method": "dgpp_nf4i8",
        "format": "mixed-codebook-packed",
        "version": 1,
        "routed_experts": _codebook(modules),
    },
}


def _gptq(format: GPTQ, kept: Sequence[str]) -> dict[str, Any]:
    return {
        "quant_method": "gptq",
        "bits": format.bits,
        "group_size": format.per_scale,
        "sym": format.symmetric,
        "desc_act": False,
        "lm_head": False,
        "checkpoint_format": "gptq_v2" if format.version == 2 else "gptq",
        "dynamic": {f"-:^{re.escape(module)}$": {} for module in kept},
    }


def _exl3(format: EXL3, modules: Sequence[str]) -> Declaration:
    entry: dict[str, Any] = {"quant_format": "exl3", "bits_per_weight": format.rate}
    if format.book in MARKERS:
        entry[f"{format.book}_multiplier"] = MARKERS[format.book]
    config = {"quant_method": "exl3", "bits": format.rate, "codebook": format.book}
    storage = {"tensor_storage": dict.fromkeys(modules, entry)}
    return Declaration(config, {"quantization_config.json": storage})


def _mixed346(format: Mixed346, modules: Sequence[str]) -> Declaration:
    layers = sorted({match[1] for module in modules if (match := re.search(r"layers\.(\d+)\.", module))}, key=int)
    config = {
        "quant_method": "dgpp_mixed346",
        "format": "dgpp_mixed346_h32_a8_g128_v1",
        "rotation_size": 32,
        "activation_bits": 8,
        "group_size": 128,
        "recipe_file": "quantization-recipe.json",
        "routed_experts": _codebook(modules),
    }
    recipe = {"layer_recipes": {layer: str(format.bits) * 3 for layer in layers}}
    return Declaration(config, {"quantization-recipe.json": recipe})
