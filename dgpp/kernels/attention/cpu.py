"""attention on the CPU: a native kernel of the order of `dgpp.kernels.attention`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.kernels.attention.arguments import check_attention
from dgpp.kernels.attention.native import NAME, attention_module
from dgpp.kernels.native.dot import dot_module
from dgpp.kernels.native.ffi import register


def attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    cache_k: jax.Array,
    cache_v: jax.Array,
    layer: jax.Array,
    page_table: jax.Array,
    position: jax.Array,
    slot: jax.Array,
    kv_index: jax.Array,
    used: jax.Array,
    zero: jax.Array,
    *,
    scale: float,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(out float32 [R, H, D], cache_k, cache_v); arguments, order and promise as in `dgpp.kernels.attention`."""
    check_attention(q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, used, zero)
    register(NAME, dot_module, attention_module)
    results = [jax.ShapeDtypeStruct(q.shape, jnp.float32)]
    results += [jax.ShapeDtypeStruct(cache.shape, cache.dtype) for cache in (cache_k, cache_v)]
    call = jax.ffi.ffi_call(NAME, results, input_output_aliases={3: 1, 4: 2})
    operands = (q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, used)
    out, cache_k, cache_v = call(*operands, scale=np.float32(scale))
    return out, cache_k, cache_v
