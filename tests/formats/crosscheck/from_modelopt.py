"""nvidia-modelopt: its quantised tensor classes, and for NVFP4 and MXFP8 also its recipes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from modelopt.torch.quantization.qtensor.fp8_tensor import FP8QTensor
from modelopt.torch.quantization.qtensor.mxfp4_tensor import MXFP4QTensor
from modelopt.torch.quantization.qtensor.mxfp8_tensor import MXFP8QTensor
from modelopt.torch.quantization.qtensor.nvfp4_tensor import NVFP4QTensor

from tests.formats.crosscheck.vector import vector, weights

PACKAGES = ("nvidia-modelopt",)


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, vector) of every class."""
    weight = weights(6, 64, 10, zero=slice(0, 32))
    packed, scale, total = NVFP4QTensor.quantize(weight.float(), 16)
    tensors = {"weight": packed._quantized_data, "weight_scale": scale, "weight_scale_2": total}
    values = packed.dequantize(torch.bfloat16, scale=scale, double_scale=total, block_sizes={-1: 16})
    yield "nvfp4", vector("nvfp4", tensors, values, source=weight.float())

    weight = weights(6, 64, 11)
    packed, scale = MXFP4QTensor.quantize(weight.float(), 32)
    scale = scale.reshape(6, 2)
    values = packed.dequantize(torch.float32, scale=scale.reshape(-1, 1), block_sizes={-1: 32})
    yield "mxfp4", vector("mxfp4", {"weight": packed._quantized_data, "weight_scale": scale}, values)

    weight = weights(6, 64, 12, zero=slice(0, 32))
    packed, scale = MXFP8QTensor.quantize(weight.float())
    values = packed.dequantize(torch.float32, scale=scale)
    tensors = {"weight": packed._quantized_data, "weight_scale": scale}
    yield "mxfp8", vector("mxfp8", tensors, values, source=weight.float())

    weight = weights(6, 48, 13)
    packed, scale = FP8QTensor.quantize(weight.float())
    values = packed.dequantize(torch.float32, scale=scale)
    tensors = {"weight": packed._quantized_data, "weight_scale": scale.reshape(())}
    yield "fp8 tensor", vector("fp8_tensor_f32", tensors, values, source=weight.float())
