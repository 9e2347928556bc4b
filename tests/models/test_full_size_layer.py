"""One layer of each kind at its published size, loaded alone from its checkpoint, runs on a CPU within memory."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.published import FLASH_NEXT, QWEN35_122B, QWEN38_27B, as_released
from dgpp.checkpoint.fixture import Tagged
from dgpp.checkpoint.spec import TensorSpec, flatten
from dgpp.checkpoint.writing import write_shards
from dgpp.formats.bf16 import BFLOAT16
from dgpp.lab.layer import lone_layer
from dgpp.models import family_of

CASES = [
    ("Qwen/Qwen3.8-27B-FP8", QWEN38_27B, 0, "DeltaNet, dense"),
    ("unsloth/Qwen3.8-27B-NVFP4", QWEN38_27B, 3, "attention, dense"),
    ("nvidia/Qwen3.5-122B-A10B-NVFP4", QWEN35_122B, 0, "DeltaNet, experts"),
    ("nvidia/Qwen3.8-Flash-Next-NVFP4", FLASH_NEXT, 3, "sparse attention, gated residual, experts"),
]
QUANTIZATION: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3.8-27B-FP8": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "unsloth/Qwen3.8-27B-NVFP4": {"quant_method": "compressed-tensors", "format": "mixed-precision"},
}
SPARE = 1 << 30
"""Bytes beside the layer: Python, JAX, compiled programs, activations."""


def random_array(rng: np.random.Generator, spec: TensorSpec, field: str, tag: str, shape: Any, dtype: Any) -> Any:
    """Random codes without NaN, and scales that give values of about 1 / sqrt(K)."""
    if field == "values":
        centre = spec.centre if len(spec.shape) == 1 else 0
        size = 1 / 8 if len(spec.shape) == 1 else 1 / np.sqrt(spec.shape[-1])
        return (centre + size * rng.standard_normal(shape, np.float32)).astype(BFLOAT16).astype(dtype)
    if field == "codes":
        bits = np.frombuffer(rng.bytes(int(np.prod(shape))), np.uint8).reshape(shape)
        return bits & 0xF7 if tag == "F8_E4M3" else bits
    if tag == "F8_E4M3":
        return np.full(shape, 0x38, np.uint8)  # 1
    rms = 160 if "fp8" in spec.format else 3
    factor = rms * np.sqrt(spec.shape[-1])
    return np.full(shape, factor if spec.format == "nvfp4_divisor" else 1 / factor, dtype)


def tensors(specs: list[TensorSpec]) -> Iterator[tuple[str, Tagged]]:
    """The tensors of the layers that are in `specs`, made as they are written."""
    rng = np.random.default_rng(0)
    for spec in specs:
        for module in spec.modules():
            for array in module.arrays:
                if not array.packed.optional:
                    packed = array.packed
                    value = random_array(rng, spec, array.field, packed.tag, packed.shape, packed.dtype)
                    yield array.tensor, (packed.tag, value)


@pytest.mark.slow
@pytest.mark.parametrize(("release", "raw", "layer", "what"), CASES, ids=[case[3] for case in CASES])
def test_a_full_size_layer_alone(release: str, raw: dict[str, Any], layer: int, what: str, tmp_path: Path) -> None:
    family = family_of(raw)
    config = family.config(raw)
    tree = as_released(family.abstract(config), release)
    only = [replace(spec, numbers=(layer,)) for _, spec in flatten(tree) if layer in spec.numbers]
    only = [spec for spec in only if "ple" not in spec.source]
    quantization = {"quantization_config": QUANTIZATION[release]} if release in QUANTIZATION else {}
    (tmp_path / "config.json").write_text(json.dumps({**raw, **quantization}))
    write_shards(tmp_path, tensors(only), 2_000_000_000)
    nbytes = sum(spec.nbytes for spec in only)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    alone = lone_layer(tmp_path, layer, positions=64)
    width = config.hidden_size * getattr(config, "hc_count", 1)
    h = np.random.default_rng(1).standard_normal((3, width), np.float32).astype(BFLOAT16)
    out = np.asarray(alone(h, alone.rows((1, 2, 3))))
    assert out.shape == h.shape
    assert np.isfinite(out.astype(np.float32)).all()
    assert not (out == h).all()
    first = np.asarray(alone(h[:1], alone.rows((1,))))
    np.testing.assert_array_equal(first, out[:1])
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert after - before < nbytes + SPARE
