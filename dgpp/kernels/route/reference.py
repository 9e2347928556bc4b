"""route in plain JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dgpp.kernels.linear.parts import summed
from dgpp.kernels.norm.reference import tree_sum
from dgpp.kernels.rounding import divided, exp_f32
from dgpp.kernels.route.arguments import check_route
from dgpp.kernels.stored import to_bf16


def route(parts: jax.Array, k: int, zero: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(experts int32 [R, k], weights bf16 [R, k]); arguments and order as in `dgpp.kernels.route`."""
    check_route(parts, k)
    logits = to_bf16(summed(parts)).astype(jnp.float32)
    odds = exp_f32(logits - jnp.max(logits, axis=-1, keepdims=True), zero)
    p = divided(odds, tree_sum(odds)[:, None])
    _, chosen = jax.lax.top_k(p, k)  # of equal values the lower index comes first
    experts = jnp.sort(chosen.astype(jnp.int32), axis=-1)
    held = jnp.take_along_axis(p, experts, axis=-1)
    return experts, to_bf16(divided(held, tree_sum(held)[:, None]))
