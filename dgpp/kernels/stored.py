"""The one way a float32 value becomes a stored activation: a bfloat16, and in float32 mode itself.

The mode is a property of the program being traced. Float32 mode exists to compare a forward's equations with another
implementation's, free of the roundings to bfloat16; nothing is served in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp

_STORED: ContextVar[Any] = ContextVar("stored", default=jnp.bfloat16)


@contextmanager
def stored_as(dtype: Any) -> Iterator[None]:
    """While a forward is traced in this context, activations are stored as `dtype`: bfloat16 or float32."""
    if dtype not in (jnp.bfloat16, jnp.float32):
        raise ValueError(f"activations are stored as bfloat16 or float32, not {dtype}")
    token = _STORED.set(dtype)
    try:
        yield
    finally:
        _STORED.reset(token)


def to_bf16(x: jax.Array) -> jax.Array:
    """`x` float32 rounded to bfloat16, to nearest, ties to even; in float32 mode `x` itself.

    A plain conversion may be dropped together with a later conversion back (XLA allows excess precision between
    fused operations), which would make bits depend on fusion; `reduce_precision` is always carried out.
    """
    if _STORED.get() == jnp.float32:
        return x
    return jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7).astype(jnp.bfloat16)


def add_bf16(x: jax.Array, y: jax.Array) -> jax.Array:
    """x + y of two stored activations: one float32 addition, one rounding."""
    return to_bf16(x.astype(jnp.float32) + y.astype(jnp.float32))
