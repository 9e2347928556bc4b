"""On a GPU: whether a row's bits depend on the number of rows, and how far the product is from float64.

    python -m tests.kernels.gpu.bits [FORMAT ...]

Prints a line a format and exits with 1 when one fails. `error` is the largest distance from float64 over the sum of the
products' magnitudes; the bound is `BOUND`.
"""

from __future__ import annotations

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from bench.random_weights import random_weight
from dgpp.formats import format_named
from dgpp.kernels import select
from dgpp.kernels.linear.triton_recipe import recipe

FORMATS = (
    "bf16", "f16", "fp8_block128", "fp8_block128_bf16", "fp8_block128_e8m0", "fp8_block32_e8m0", "fp8_channel",
    "fp8_channel_f32", "fp8_tensor", "nvfp4", "nvfp4_divisor", "mxfp4", "mxfp4_deepseek", "mxfp4_packed",
    "mxfp4_blocks", "mxfp8", "int4_g64", "int8_g64", "int4_g128_f16", "int8_g128_f16",
)  # fmt: skip
COUNTS = (1, 2, 3, 8, 16, 17, 33, 64, 2048)
N, K = 1000, 2560
LEAVES = ((0, 512), (512, 1280), (1280, 1920), (1920, 2560))
BOUND = 2.0**-23 * K / 16
"""What the order implies at worst: the matrix unit adds 16 products at a time and truncates the sum to 24 bits."""


def check(format: str) -> tuple[bool, str]:
    """Whether `format` holds, and a line about it."""
    kernels = select("triton")
    w = random_weight(format, 2, N, K)
    x = jax.random.normal(jax.random.key(1), (max(COUNTS), K), jnp.float32).astype(jnp.bfloat16)
    x = x.at[3].multiply(2.0**-100).at[5].multiply(2.0**100)
    layer, trouble = jnp.int32(1), []
    for name, ranges in (("whole", ((0, K),)), ("leaves", LEAVES)):
        if recipe(format_named(format), ranges, K) is None:
            trouble.append(f"{name}: no recipe")
        call = jax.jit(partial(kernels.linear_leaves, ranges=ranges))
        everything = np.asarray(call(x, w, layer, jnp.int32(len(x))))
        for count in COUNTS:
            found = np.asarray(call(x[:count], w, layer, jnp.int32(count)))
            if found.tobytes() != everything[:, :count].tobytes():
                trouble.append(f"{name}: {(found != everything[:, :count]).mean():.1%} differ at {count} rows")
        backwards = np.asarray(call(x[63::-1], w, layer, jnp.int32(60)))
        if backwards[:, :60].tobytes() != everything[:, 63:3:-1].tobytes() or backwards[:, 60:].any():
            trouble.append(f"{name}: rows in another order, or padding, differ")
        rows = slice(0, 48)
        values = format_named(format).decode64({a: np.asarray(v)[1] for a, v in w.arrays.items()}, (N, K))
        exact = np.asarray(x[rows].astype(jnp.float32)).astype(np.float64)
        wanted = np.stack([exact[:, a:b] @ values[:, a:b].T for a, b in ranges])
        weight = np.stack([np.abs(exact[:, a:b]) @ np.abs(values[:, a:b]).T for a, b in ranges])
        error = float((np.abs(everything[:, rows] - wanted) / weight).max())
        if not error < BOUND:
            trouble.append(f"{name}: error {error:.2e} is above {BOUND:.2e}")
    return not trouble, f"{format}: error 2^{np.log2(error):.1f}; " + ("; ".join(trouble) or "equal at every count")


def exact_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, kv_index: jax.Array, step: int) -> np.ndarray:
    """float64 [R, H, D] of one prompt: every `step`-th row, the others zero."""
    out = np.zeros(q.shape)
    for r in range(0, len(q), step):
        for h, kv in enumerate(np.asarray(kv_index)):
            score = k[: r + 1, kv] @ q[r, h] * q.shape[-1] ** -0.5
            weight = np.exp(score - score.max())
            out[r, h] = weight @ v[: r + 1, kv] / weight.sum()
    return out


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
