"""RMSNorm, with the sum over D as a halving tree so that no compiler chooses its order."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dgpp.kernels.rounding import rounded
from dgpp.layers.rounding import to_bf16


def tree_sum(x: jax.Array) -> jax.Array:
    """Sum over the last axis: zero-padded to a power of two, then x[i] + x[i + half] until one is left."""
    width = 1 << max(0, x.shape[-1] - 1).bit_length()
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])])
    while width > 1:
        width //= 2
        x = x[..., :width] + x[..., width:]
    return x[..., 0]


def rms_norm(x: jax.Array, weight: jax.Array, eps: float, zero: jax.Array) -> jax.Array:
    """x / sqrt(mean(x^2) + eps) * weight, bf16 [R, D] from bf16 [R, D] and bf16 [D]; one rounding at the end.

    Squares of bf16 are exact in float32. The reciprocal is a division by a rounded root, because the compiler would
    turn `1 / sqrt` into an approximate `rsqrt` whose bits depend on the processor.
    """
    h = x.astype(jnp.float32)
    mean = rounded(tree_sum(h * h) * (1.0 / x.shape[-1]), zero)
    inverse = 1.0 / rounded(jnp.sqrt(mean + eps), zero)
    return to_bf16(h * inverse[:, None] * weight.astype(jnp.float32))
