"""One vector: a weight's tensors and its values, as text."""

from __future__ import annotations

from typing import Any

import torch

TAGS = {
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e8m0fnu: "F8_E8M0",
}
COLUMNS = 64  # bytes of a line of hexadecimal


def vector(
    tag: str,
    tensors: dict[str, torch.Tensor],
    values: torch.Tensor,
    source: torch.Tensor | None = None,
    inner: torch.Tensor | None = None,
) -> dict[str, Any]:
    """A vector of our format `tag`: `tensors` by suffix, and the library's own decoded `values` [N, K].

    `source` is given when the library made the tensors from it by a recipe that we claim to have as well. `inner` is
    for formats in a turned basis: the values before they are turned back.
    """
    out: dict[str, Any] = {
        "format": tag,
        "tensors": {suffix: text(tensor) for suffix, tensor in tensors.items()},
        "values": text(values),
    }
    if source is not None:
        out["source"] = text(source)
    if inner is not None:
        out["inner"] = text(inner)
    return out


def text(tensor: torch.Tensor) -> dict[str, Any]:
    """Header tag, shape and bytes of a tensor; bytes in lines of hexadecimal."""
    tensor = tensor.detach().contiguous()
    data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
    lines: list[str] = []
    for start in range(0, len(data), COLUMNS):
        lines.append(data[start : start + COLUMNS].hex())
    return {"dtype": TAGS[tensor.dtype], "shape": list(tensor.shape), "hex": lines}


def weights(n: int, k: int, seed: int, zero: slice | None = None) -> torch.Tensor:
    """Random bfloat16 values [N, K] with rows of different size; `zero` are columns of row 0 that are zero."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(n, k, generator=generator) * torch.logspace(-2, 1, n, base=2)[:, None] / k**0.5
    if zero is not None:
        values[0, zero] = 0
    return values.to(torch.bfloat16)
