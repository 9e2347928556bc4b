"""auto-round: its two packings of integers in groups, zero points stored as they are and less one.

Only the layer classes are imported; the package around them needs a training stack.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from tests.formats.crosscheck.alone import module_of
from tests.formats.crosscheck.vector import vector, weights

PACKAGES = ("auto-round",)
N, K, GROUP = 32, 64, 32
FILES = {2: "auto_round_extension/torch/qlinear_torch.py", 1: "auto_round_extension/torch/qlinear_torch_zp.py"}


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, vector) of both packings, symmetric and not, with 4 and 8 bits."""
    module_of("auto-round", "auto_round/utils/bit_packing.py", "auto_round.utils.bit_packing", {
        "auto_round": {}, "auto_round.utils": {"get_packing_device": lambda device: "cpu"},
        "auto_round_extension": {}, "auto_round_extension.torch": {},
    })  # fmt: skip
    layers = {
        version: module_of("auto-round", path, path.removesuffix(".py").replace("/", "."), {}).QuantLinear
        for version, path in FILES.items()
    }
    for bits, version, symmetric in (
        (4, 1, True),
        (4, 1, False),
        (4, 2, True),
        (4, 2, False),
        (8, 1, True),
        (8, 2, False),
    ):
        name = f"int{bits}, version {version}, {'symmetric' if symmetric else 'asymmetric'}"
        yield name, _one(layers[version], bits, version, symmetric)


def _one(layer: Any, bits: int, version: int, symmetric: bool) -> dict[str, Any]:
    linear = torch.nn.Linear(K, N, bias=False)
    linear.weight.data = weights(N, K, 30 + bits + version).float()
    parts = linear.weight.data.reshape(N, -1, GROUP)
    half, most = 1 << (bits - 1), (1 << bits) - 1
    zeros: Any
    if symmetric:
        largest = torch.take_along_dim(parts, parts.abs().argmax(-1, keepdim=True), -1)[..., 0]
        scales, zeros = largest / -half, half
    else:
        scales = (parts.amax(-1) - parts.amin(-1)) / most
        zeros = torch.round(-parts.amin(-1) / scales).clamp(1, most)
    scales = scales.half().float()
    packed = layer(bits, GROUP, K, N, bias=False)
    packed.device = "cpu"  # one of the two classes asks for it and does not set it
    packed.pack(linear, scales, zeros, None, "cpu")
    with torch.no_grad():
        values = packed(torch.eye(K, dtype=torch.float16)).t()
    tag = f"gptq_int{bits}_g{GROUP}" + ("" if symmetric else f"_asym_v{version}")
    tensors = {"qweight": packed.qweight, "scales": packed.scales, "qzeros": packed.qzeros}
    return vector(tag, tensors, values.contiguous())
