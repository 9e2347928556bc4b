"""The argument checks that every implementation of route makes while tracing."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def check_route(logits: jax.Array, k: int) -> None:
    """Raises ValueError naming the argument that is wrong."""
    if logits.ndim != 2 or not jnp.issubdtype(logits.dtype, jnp.floating):
        raise ValueError(f"route: logits must be floating point [R, E], not {logits.dtype} of shape {logits.shape}")
    if not 1 <= k <= logits.shape[1]:
        raise ValueError(f"route: k = {k} must be from 1 to E = {logits.shape[1]}")
