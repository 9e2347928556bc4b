"""gptqmodel: its decoder of EXL3 tiles in torch, for whole bit rates and all three codebooks.

Only the decoder is imported. Its codebooks are not rounded on a CPU; the kernels' are float16, so the tile values are
rounded here. The values in the basis of the model are its own, from the rounded tiles.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import torch

from tests.formats.crosscheck.alone import module_of
from tests.formats.crosscheck.vector import vector

PACKAGES = ("gptqmodel",)
SIZE = 128
MARKERS = {"mcg": 0xCBAC1FED, "mul1": 0x83DCD12D}


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, vector) of some bit rates and every codebook."""
    decoder = _decoder()
    for rate, book in ((2, "3inst"), (3, "mcg"), (4, "mul1")):
        generator = torch.Generator().manual_seed(40 + rate)
        words = torch.randint(-32768, 32768, (8, 8, 16 * rate), generator=generator, dtype=torch.int16)
        tensors = {"trellis": words}
        for name in ("suh", "svh"):
            signs = torch.randint(0, 2, (SIZE,), generator=generator) * 2 - 1
            tensors[name] = (signs * (0.5 + torch.rand(SIZE, generator=generator))).half()
        if book in MARKERS:
            marker = MARKERS[book] - (1 << 32)
            tensors[book] = torch.tensor(marker, dtype=torch.int32)
        layer = decoder.ExllamaV3TorchLinear.from_tensors(
            in_features=SIZE, out_features=SIZE, name="layer", tensors=tensors
        )
        inner = layer.get_inner_weight_tensor().half()
        layer._decode_inner_weight = lambda inner=inner: inner.float()
        values = layer.get_weight_tensor(torch.float32).t().contiguous()
        rows = slice(0, 8)  # the whole matrix would be most of the file
        yield f"{rate} bits, {book}", vector(f"exl3_{rate}_{book}", tensors, values[rows], inner=inner.t()[rows])


def _decoder() -> Any:
    def flag(*names: Any, **more: Any) -> bool:
        return False

    stubs: dict[str, dict[str, Any]] = {
        "gptqmodel": {},
        "gptqmodel.utils": {},
        "gptqmodel.nn_modules": {},
        "gptqmodel.utils.cpu_features": {"has_avx512_bf16": flag},
        "gptqmodel.utils.env": {"env_flag": flag},
        "gptqmodel.utils.logger": {"setup_logger": lambda: logging.getLogger("gptqmodel")},
        "gptqmodel.utils.torch": {"TORCH_HAS_COMPILE": False, "torch_compile": lambda function, **more: function},
        "gptqmodel.nn_modules.exllamav3": {
            "_EXL3_BUFFER_NAMES": ("suh", "svh", "trellis", "mcg", "mul1", "bias"),
            "_torch_dtype": lambda name: getattr(torch, name),
        },
    }
    path = "gptqmodel/nn_modules/exllamav3_torch.py"
    return module_of("gptqmodel", path, "gptqmodel.nn_modules.exllamav3_torch", stubs)
