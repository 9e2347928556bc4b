"""Hadamard transforms on a GPU, in the order of `dgpp.formats.hadamard`: the same bits, but for subnormal numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import triton
import triton.language as tl

from dgpp.formats import hadamard
from dgpp.kernels.gpu.launch import Out, launch
from dgpp.kernels.gpu.rounding import to_bf16

BLOCK = 1024  # elements of a row in one program

_SCALE_32 = tl.constexpr(float(hadamard.SCALE_32))


@triton.jit
def butterflies(x: tl.tensor, COUNT: tl.constexpr, STAGES: tl.constexpr) -> tl.tensor:
    """H times every 2^STAGES neighbours of float32 x [COUNT], unscaled."""
    for stage in tl.static_range(STAGES):
        pairs = tl.reshape(x, (COUNT >> (stage + 1), 2, 1 << stage))
        a, b = tl.split(tl.permute(pairs, (0, 2, 1)))
        x = tl.reshape(tl.permute(tl.join(a + b, a - b), (0, 2, 1)), (COUNT,))
    return x


@triton.jit
def rotate(
    x: tl.tensor,  # bf16 [R, K]
    out: tl.tensor,  # bf16 [R, K]
    K: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Grid (R, blocks of K): H32 / sqrt(32) of every 32 elements, rounded once. K is a multiple of 32."""
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    at = tl.program_id(0).to(tl.int64) * K + k
    turned = butterflies(tl.load(x + at, mask=k < K, other=0.0).to(tl.float32), BLOCK, 5)
    tl.store(out + at, to_bf16(turned * _SCALE_32), mask=k < K)


def rotated(x: jax.Array) -> jax.Array:
    """Rows x bfloat16 [R, K] as the formats in the basis of H32 read them, bfloat16 [R, K]."""
    rows, k = x.shape
    block = min(BLOCK, 1 << (k - 1).bit_length())
    grid = (rows, -(-k // block))
    return launch(rotate, (x,), (Out(x.shape, jnp.bfloat16),), grid, {"K": k, "BLOCK": block}, warps=4, stages=1)[0]
