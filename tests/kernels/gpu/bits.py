"""On a GPU: whether a row's bits depend on the number of rows, and how far the product is from float64.

    python -m tests.kernels.gpu.bits [FORMAT ...]

Prints a line a format and exits with 1 when one fails. `error` is the largest distance from float64 (after what a
format rounds in its rows) over the sum of the products' magnitudes; the bound is that of `formats`.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.random_weights import random_weight
from dgpp.formats import format_named
from dgpp.kernels import select
from dgpp.kernels.linear.triton_own import own_kernel
from dgpp.kernels.linear.triton_recipe import recipe
from tests.kernels.gpu.contract import products64
from tests.kernels.gpu.formats import FORMATS as OWN
from tests.kernels.gpu.formats import bound

FORMATS = (
    "bf16", "f16", "fp8_block128", "fp8_block128_bf16", "fp8_block128_e8m0", "fp8_block32_e8m0", "fp8_channel",
    "fp8_channel_f32", "fp8_tensor", "nvfp4", "nvfp4_divisor", "mxfp4", "mxfp4_deepseek", "mxfp4_packed",
    "mxfp4_blocks", "mxfp8", "int4_g64", "int8_g64", "int4_g128_f16", "int8_g128_f16", *OWN,
)  # fmt: skip
COUNTS = (1, 2, 3, 8, 16, 17, 33, 64, 2048)


def shape_of(format: str) -> tuple[int, int]:
    """(N, K), with a tile of outputs that is not full where the format allows."""
    if format.startswith("exl3"):
        return 1024, 2560
    return (1000, 4096) if format == "bf12" else (1000, 2560)


def check(format: str) -> tuple[bool, str]:
    """Whether `format` holds, and a line about it."""
    kernels, kind, (n, k) = select("triton"), format_named(format), shape_of(format)
    leaves = ((0, 512), (512, 1280), (1280, 1920), (1920, k))
    w = random_weight(format, 2, n, k)
    x = jax.random.normal(jax.random.key(1), (max(COUNTS), k), jnp.float32).astype(jnp.bfloat16)
    if not format.startswith("exl3"):  # whose rows are float16
        x = x.at[3].multiply(2.0**-100).at[5].multiply(2.0**100)
    layer, trouble, errors = jnp.int32(1), [], []
    for name, ranges in (("whole", ((0, k),)), ("leaves", leaves)):
        if recipe(kind, ranges, k) is None and own_kernel(kind, ranges, k) is None:
            trouble.append(f"{name}: no recipe")
        call = jax.jit(partial(kernels.linear_leaves, ranges=ranges) if name == "leaves" else kernels.linear)

        def product(x: jax.Array, used: int, call: Any = call) -> np.ndarray:
            return np.asarray(call(x, w, layer, jnp.int32(used))).reshape(-1, len(x), n)

        everything = product(x, len(x))
        for count in COUNTS:
            found = product(x[:count], count)
            if found.tobytes() != everything[:, :count].tobytes():
                trouble.append(f"{name}: {(found != everything[:, :count]).mean():.1%} differ at {count} rows")
        backwards = product(x[63::-1], 60)
        if backwards[:, :60].tobytes() != everything[:, 63:3:-1].tobytes() or backwards[:, 60:].any():
            trouble.append(f"{name}: rows in another order, or padding, differ")
        one = {field: np.asarray(array)[1] for field, array in w.arrays.items()}
        wanted, size = products64(np.asarray(x[:48]), one, (n, k), format, ranges)
        errors.append(float((np.abs(everything[:, :48] - wanted) / size).max()))
        if not errors[-1] < bound(format, k):
            trouble.append(f"{name}: error {errors[-1]:.2e} is above {bound(format, k):.2e}")
    return not trouble, f"{format}: error 2^{np.log2(max(errors)):.1f}; " + (
        "; ".join(trouble) or "equal at every count"
    )


def main(formats: list[str]) -> int:
    """The command."""
    good = True
    for format in formats or FORMATS:
        try:
            fine, line = check(format)
        except Exception as error:
            fine, line = False, f"{format}: {type(error).__name__}: {str(error)[:400]}"
        print("ok  " if fine else "FAIL", line, flush=True)
        good &= fine
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
