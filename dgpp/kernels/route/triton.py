"""route on a GPU: the bits of the reference on a CPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dgpp.kernels.gpu.launch import Out, launch
from dgpp.kernels.route.arguments import check_route
from dgpp.kernels.route.triton_softmax import choose

WARPS = 4


def route(parts: jax.Array, k: int, zero: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(experts int32 [R, k], weights bf16 [R, k]); arguments and order as in `dgpp.kernels.route`."""
    check_route(parts, k)
    count, rows, experts = parts.shape
    outs = (Out((rows, k), jnp.int32), Out((rows, k), jnp.bfloat16))
    levels = [max(1, (n - 1).bit_length()) for n in (experts, k)]
    constants = {"PARTS": count, "R": rows, "E": experts, "EPAD": 1 << levels[0], "ELEVELS": levels[0]}
    constants |= {"CHOSEN": k, "CPAD": 1 << levels[1], "CLEVELS": levels[1]}
    chosen, weights = launch(choose, (parts,), outs, (rows,), constants, warps=WARPS, stages=1)
    return chosen, weights
