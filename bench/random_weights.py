"""Random weights of any format made on the device: every code, plain scales, no NaN."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dgpp.formats import Weight, bf12, format_named
from dgpp.formats.gptq import GPTQ

PAYLOADS = ("codes", "indices", "planes", "trellis", "qweight", "qzeros", "su", "sv")
"""Fields whose every bit is random."""


def random_weight(format: str, layers: int, n: int, k: int, seed: int = 0) -> Weight:
    """`layers` stacked weights [N, K] with random codes; values are around 1."""
    keys = iter(jax.random.split(jax.random.key(seed), 8))
    kind = format_named(format)
    if format == "bf12":
        return Weight(_bf12(next(keys), layers, n, k), format, (n, k))
    arrays = {}
    for name, packed in kind.arrays((n, k)).items():
        if packed.resident:
            arrays[name] = _random(next(keys), name, packed.tag, packed.dtype, (layers, *packed.shape))
    if "g_idx" in arrays and isinstance(kind, GPTQ):
        order = [jax.random.permutation(key, k) for key in jax.random.split(next(keys), layers)]
        arrays["g_idx"] = (jnp.stack(order) // kind.per_scale).astype(jnp.int32)
    return Weight(arrays, format, (n, k))


def random_experts(format: str, layers: int, held: int, n: int, k: int, seed: int = 0) -> Weight:
    """`layers` stacked weights [E, N, K] with random codes."""
    flat = random_weight(format, layers * held, n, k, seed)
    arrays = {name: array.reshape(layers, held, *array.shape[1:]) for name, array in flat.arrays.items()}
    return Weight(arrays, format, (held, n, k))


def _random(key: jax.Array, name: str, tag: str, dtype: jnp.dtype, shape: tuple[int, ...]) -> jax.Array:
    if name == "values":
        return jax.random.normal(key, shape, jnp.bfloat16).astype(dtype)
    if name in PAYLOADS:
        width = jnp.dtype(dtype).itemsize
        bits = jax.random.bits(key, (*shape[:-1], shape[-1] * width), jnp.uint8)
        bits = bits & 0xF7 if tag == "F8_E4M3" else bits  # without this bit no code is NaN
        return jax.lax.bitcast_convert_type(bits.reshape(*shape, width) if width > 1 else bits, dtype)
    if tag in ("U8", "F8_E8M0"):
        return jax.random.randint(key, shape, 120, 130, jnp.uint8)
    if tag == "F8_E4M3":
        return jax.random.bits(key, shape, jnp.uint8) & 0x77
    return jax.random.uniform(key, shape, jnp.float32, 0.5, 1.5).astype(dtype)


def _bf12(key: jax.Array, layers: int, n: int, k: int) -> dict[str, jax.Array]:
    """Exponents 113 to 127, an escape in every row and no row raw, as trained matrices have them."""
    bits = jax.random.bits(key, (layers, n, k // bf12.SUPER, 3, bf12.SUPER // 2), jnp.uint8)
    packed = bits.at[..., 2, :].set(bits[..., 2, :] & 0xEE)  # no code is 15
    row = jnp.arange(n + 1, dtype=jnp.uint32)
    words = jnp.stack([row, jnp.where(row < n, jnp.uint32(113 << 23), 0)], -1).reshape(-1)
    row = row[:n]
    column = row * 37 % k
    at = (row, column // bf12.SUPER, 2, column % 256 // 8 * 16 + column % bf12.SUPER // 256 * 4 + column % 8 // 2)
    packed = jax.vmap(lambda layer: layer.at[at].set(layer[at] | ((15 << (column % 2 * 4)).astype(jnp.uint8))))(packed)
    escape = column << 16 | 0x4040  # 3
    return {
        "packed": packed.reshape(layers, n, k * 3 // 2),
        "rows": jnp.broadcast_to(words, (layers, 2 * n + 2)),
        "escapes": jnp.broadcast_to(escape, (layers, n)),
        "raw": jnp.zeros((layers, 0, k), jnp.bfloat16),
    }
