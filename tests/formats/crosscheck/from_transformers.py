"""transformers: how it reads FP8 in blocks, with scales of three kinds, and the experts of gpt-oss and DeepSeek."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from tests.formats.crosscheck.vector import vector, weights

PACKAGES = ("transformers",)


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, vector) of every kind."""
    reader = Fp8Dequantize(None)
    generator = torch.Generator().manual_seed(20)
    codes = weights(32, 32, 21).float().mul(200).clamp(-448, 448).to(torch.float8_e4m3fn)
    scale = torch.rand(2, 2, generator=generator) / 100
    exponents = torch.randint(110, 130, (2, 2), generator=generator, dtype=torch.uint8)
    for name, tag, suffix, scales in (
        ("fp8 blocks", "fp8_block16", "weight_scale_inv", scale),
        ("fp8 blocks, BF16 scales", "fp8_block16_bf16", "weight_scale_inv", scale.to(torch.bfloat16)),
        ("fp8 blocks, E8M0 scales", "fp8_block16_e8m0", "scale", exponents.view(torch.float8_e8m0fnu)),
    ):
        values = reader._dequantize_one(codes, scales, torch.bfloat16)
        yield name, vector(tag, {"weight": codes, suffix: scales}, values)

    packed = torch.randint(0, 256, (4, 64), generator=generator, dtype=torch.uint8)
    exponents = torch.randint(110, 135, (4, 4), generator=generator, dtype=torch.uint8)
    values = reader._dequantize_one(packed.view(torch.int8), exponents.view(torch.float8_e8m0fnu), torch.bfloat16)
    tensors = {"weight": packed.view(torch.int8), "scale": exponents.view(torch.float8_e8m0fnu)}
    yield "deepseek experts", vector("mxfp4_deepseek", tensors, values)

    blocks = torch.randint(0, 256, (2, 4, 2, 16), generator=generator, dtype=torch.uint8)
    scales = torch.randint(110, 135, (2, 4, 2), generator=generator, dtype=torch.uint8)
    values = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16).transpose(1, 2)
    yield "gpt-oss experts", vector("mxfp4_blocks", {"_blocks": blocks, "_scales": scales}, values)
