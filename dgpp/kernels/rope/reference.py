"""Rotary position embedding in plain JAX: heads turned by the angles of their rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dgpp.kernels.rounding import rounded
from dgpp.kernels.stored import to_bf16


def apply_rope(x: jax.Array, cos: jax.Array, sin: jax.Array, zero: jax.Array) -> jax.Array:
    """`x` [R, H, Dh] turned by the rows' angles, bf16: float32 products and sums, one rounding.

    `cos` and `sin` are float32 [R, Dr/2]; elements from Dr on pass through. `zero` keeps the compiler from fusing a
    product into the sum.
    """
    first, second, rest = _halves(x, cos)
    cos, sin = cos[:, None], sin[:, None]
    turned = (
        rounded(first * cos, zero) - rounded(second * sin, zero),
        rounded(second * cos, zero) + rounded(first * sin, zero),
    )
    return to_bf16(jnp.concatenate((*turned, rest), axis=-1))


def apply_mrope(x: jax.Array, cos: jax.Array, sin: jax.Array, zero: jax.Array) -> jax.Array:
    """`x` [R, H, Dh] turned by the rows' angles, bf16, with the three roundings of the Qwen families.

    Cosine and sine are rounded to bf16; then bf16(bf16(x * cos) + bf16(rot(x) * sin)), where rot swaps the halves and
    negates the first. `cos` and `sin` are float32 [R, Dr/2]; elements from Dr on pass through.
    """
    first, second, rest = _halves(x, cos)
    c, s = (to_bf16(t).astype(jnp.float32)[:, None] for t in (cos, sin))

    def stored(product: jax.Array) -> jax.Array:
        return rounded(to_bf16(product).astype(jnp.float32), zero)

    turned = (stored(first * c) + stored(-second * s), stored(second * c) + stored(first * s))
    return to_bf16(jnp.concatenate((*turned, rest), axis=-1))


def _halves(x: jax.Array, cos: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The two halves of the rotary part and the rest of each head, float32."""
    h, half = x.astype(jnp.float32), cos.shape[-1]
    return h[..., :half], h[..., half : 2 * half], h[..., 2 * half :]
