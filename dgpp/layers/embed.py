"""Embeddings: rows of a table by token."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels.stored import to_bf16


def embed(table: Weight, token: jax.Array) -> jax.Array:
    """The embeddings of tokens int32 [R], bf16 [R, D]; negative tokens are padding."""
    return to_bf16(table.arrays["values"][jnp.maximum(token, 0)].astype(jnp.float32))
