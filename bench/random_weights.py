"""Random weights of any format made on the device: every code, plain scales, no NaN."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dgpp.formats import Weight, format_named


def random_weight(format: str, layers: int, n: int, k: int, seed: int = 0) -> Weight:
    """`layers` stacked weights [N, K] with random codes; values are around 1."""
    arrays = {}
    keys = iter(jax.random.split(jax.random.key(seed), 8))
    for name, packed in format_named(format).arrays((n, k)).items():
        if packed.resident:
            arrays[name] = _random(next(keys), name, packed.tag, packed.dtype, (layers, *packed.shape))
    return Weight(arrays, format, (n, k))


def _random(key: jax.Array, name: str, tag: str, dtype: jnp.dtype, shape: tuple[int, ...]) -> jax.Array:
    if name == "values":
        return jax.random.normal(key, shape, jnp.bfloat16).astype(dtype)
    if name == "codes":
        width = jnp.dtype(dtype).itemsize
        bits = jax.random.bits(key, (*shape[:-1], shape[-1] * width), jnp.uint8)
        bits = bits & 0xF7 if tag == "F8_E4M3" else bits  # without this bit no code is NaN
        return jax.lax.bitcast_convert_type(bits.reshape(*shape, width) if width > 1 else bits, dtype)
    if tag in ("U8", "F8_E8M0"):
        return jax.random.randint(key, shape, 120, 130, jnp.uint8)
    if tag == "F8_E4M3":
        return jax.random.bits(key, shape, jnp.uint8) & 0x77
    return jax.random.uniform(key, shape, jnp.float32, 0.5, 1.5).astype(dtype)
