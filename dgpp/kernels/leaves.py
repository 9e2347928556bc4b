"""The four leaves of a row-parallel product, and the order in which they are added."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dgpp.kernels.stored import to_bf16


def folded(leaves: jax.Array) -> jax.Array:
    """(q0 + q1) + (q2 + q3), bf16 [R, D], of leaves [4, R, D]: each is rounded to bf16, they are added in float32, and
    the sum is rounded once. In float32 mode nothing is rounded."""
    q0, q1, q2, q3 = to_bf16(leaves.astype(jnp.float32)).astype(jnp.float32)
    return to_bf16((q0 + q1) + (q2 + q3))
