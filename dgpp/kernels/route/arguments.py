"""The argument checks that every implementation of route makes while tracing."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def check_route(parts: jax.Array, k: int) -> None:
    """Raises ValueError naming the argument that is wrong."""
    if parts.ndim != 3 or parts.dtype != jnp.float32:
        raise ValueError(f"route: parts must be float32 [P, R, E], not {parts.dtype} of shape {parts.shape}")
    if not 1 <= k <= parts.shape[2]:
        raise ValueError(f"route: k = {k} must be from 1 to E = {parts.shape[2]}")
