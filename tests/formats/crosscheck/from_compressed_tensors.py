"""compressed-tensors: its compressors of the formats that releases use, with the scales of its own observers' rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.mxfp8.base import MXFP8QuantizationCompressor
from compressed_tensors.compressors.naive_quantized.base import FloatQuantizationCompressor
from compressed_tensors.compressors.nvfp4.base import NVFP4PackedCompressor
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from compressed_tensors.quantization.utils.helpers import calculate_qparams, generate_gparam

from tests.formats.crosscheck.vector import vector, weights

PACKAGES = ("compressed-tensors",)
FLOAT4, FLOAT8 = ({"num_bits": bits, "type": "float"} for bits in (4, 8))
INTEGER = {"type": "int", "strategy": "group", "group_size": 64}
CASES: dict[str, tuple[str, Any, dict[str, Any], int]] = {  # name: our tag, compressor, arguments, columns
    "nvfp4": ("nvfp4_divisor", NVFP4PackedCompressor, {**FLOAT4, "strategy": "tensor_group", "group_size": 16}, 64),
    "mxfp4": ("mxfp4_packed", MXFP4PackedCompressor, {**FLOAT4, "strategy": "group", "group_size": 32}, 64),
    "mxfp8": ("mxfp8", MXFP8QuantizationCompressor, {**FLOAT8, "strategy": "group", "group_size": 32}, 64),
    "fp8 channel": ("fp8_channel", FloatQuantizationCompressor, {**FLOAT8, "strategy": "channel"}, 48),
    "fp8 tensor": ("fp8_tensor", FloatQuantizationCompressor, {**FLOAT8, "strategy": "tensor"}, 48),
    "int4": ("int4_g64", PackedQuantizationCompressor, {**INTEGER, "num_bits": 4}, 128),
    "int8": ("int8_g64", PackedQuantizationCompressor, {**INTEGER, "num_bits": 8}, 128),
}


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, vector) of every case."""
    for seed, (name, (tag, compressor, arguments, columns)) in enumerate(CASES.items()):
        scale_dtype = torch.uint8 if name.startswith("mx") else None
        args = QuantizationArgs(symmetric=True, dynamic=False, scale_dtype=scale_dtype, **arguments)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        weight = weights(6, columns, seed)
        state = {"weight": weight, **_scales(weight, args)}
        packed = compressor.compress(state, scheme)
        packed.pop("weight_zero_point", None)
        values = compressor.decompress(dict(packed), scheme)["weight"]
        yield name, vector(tag, packed, values)


def _scales(weight: torch.Tensor, args: QuantizationArgs) -> dict[str, torch.Tensor]:
    """Scales in bfloat16, as models in bfloat16 have them; NVFP4's by its global scale."""
    group = args.group_size
    if args.strategy == "tensor":
        low, high = weight.amin().reshape(1), weight.amax().reshape(1)
    elif group:
        parts = weight.reshape(weight.shape[0], -1, group)
        low, high = parts.amin(-1), parts.amax(-1)
    else:
        low, high = weight.amin(-1, keepdim=True), weight.amax(-1, keepdim=True)
    if args.num_bits == 4 and args.type == "float" and group == 16:
        total = generate_gparam(weight.amin().float(), weight.amax().float())
        scale, _ = calculate_qparams(low.float(), high.float(), args, global_scale=total)
        return {"weight_scale": scale, "weight_global_scale": total}
    scale, _ = calculate_qparams(low, high, args)
    return {"weight_scale": scale}
