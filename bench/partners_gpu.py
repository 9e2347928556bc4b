"""Public matrix products of the same sizes on the same GPU, in a process of their own: PyTorch's.

    python -m bench.partners_gpu 17408 5120 1,16,64

prints a JSON list of rows. `seconds` are those of all kernels that one product launches, from PyTorch's profiler, each
product with a weight of its own, PASS_BYTES of them in all:
- "cublas bf16": `torch.mm` of bfloat16;
- "scaled_mm fp8": `torch._scaled_mm` of E4M3 rows and an E4M3 weight with a scale a tensor: rows that were rounded to
  eight bits, which ours are not;
- "int4pack_mm g64": `torch.ops.aten._weight_int4pack_mm`, bfloat16 rows and 4-bit codes in groups of 64.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from bench.partners import printed

PASS_BYTES = 1 << 29
WARM_PASSES = 2
PASSES = 3


def partners(n: int, k: int, rows: Sequence[int], seconds: float) -> list[dict[str, Any]]:
    """The rows that a process of its own prints; a row of a partner that failed has `error`. Raises PartnerError when
    the process fails or takes longer."""
    return list(printed("bench.partners_gpu", (str(n), str(k), ",".join(map(str, rows))), seconds))


def _seconds(call: Callable[[Any], Any], weights: Sequence[Any]) -> float:
    """Of one product: what all kernels of a pass took, over the number of weights; the least of PASSES."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    def walk() -> None:
        for weight in weights:
            call(weight)
        torch.cuda.synchronize()

    for _ in range(WARM_PASSES):
        walk()
    found = []
    for _ in range(PASSES):
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            walk()
        kernels = [e for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA]
        found.append(sum(e.time_range.elapsed_us() for e in kernels) * 1e-6 / len(weights))
    return min(found)


def _cases(n: int, k: int, rows: int) -> dict[str, tuple[int, Callable[[], Any], Callable[[Any], Any]]]:
    """By name: bytes of a weight, how one is made, and the product with it."""
    import torch

    def device(*shape: int, dtype: Any = torch.bfloat16) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).to(dtype)

    x = device(rows, k)
    x8, one = x.to(torch.float8_e4m3fn), torch.ones((), device="cuda")

    def int4() -> Any:
        codes = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device="cuda")
        scales = torch.ones(k // 64, n, 2, dtype=torch.bfloat16, device="cuda")
        return torch.ops.aten._convert_weight_to_int4pack(codes, 8), scales

    return {
        "cublas bf16": (2 * n * k, lambda: device(n, k), lambda w: torch.mm(x, w.T)),
        "scaled_mm fp8": (
            n * k,
            lambda: device(n, k, dtype=torch.float8_e4m3fn),
            lambda w: torch._scaled_mm(x8, w.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16),
        ),
        "int4pack_mm g64": (
            n * k // 2 + n * k // 64 * 4,
            int4,
            lambda w: torch.ops.aten._weight_int4pack_mm(x, w[0], 64, w[1]),
        ),
    }


def main(arguments: Sequence[str]) -> int:
    """The command line."""
    n, k = int(arguments[0]), int(arguments[1])
    found = []
    for rows in map(int, arguments[2].split(",")):
        for name, (nbytes, make, call) in _cases(n, k, rows).items():
            row: dict[str, Any] = {"kernel": name, "N": str(n), "K": str(k), "rows": rows}
            try:
                weights = [make() for _ in range(max(2, PASS_BYTES // nbytes))]
                seconds = _seconds(call, weights)
            except Exception as error:  # a partner that has no kernel for the case
                row["error"] = f"{type(error).__name__}: {str(error)[:200]}"
            else:
                row |= {"seconds": seconds, "bytes": nbytes + 2 * rows * (n + k)}
            found.append(row)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
