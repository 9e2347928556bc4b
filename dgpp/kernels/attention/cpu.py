"""attention on the CPU: a native kernel of the order of `dgpp.kernels.attention`.

It knows bfloat16 caches whose keys and values are of one width. A call with sinks, a window, rows of FP8 or another
width of values runs as the reference does, which has the same bits and is slow.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.kernels.attention import reference
from dgpp.kernels.attention.arguments import Cache, check_attention
from dgpp.kernels.attention.native import NAME, attention_module
from dgpp.kernels.native.dot import dot_module
from dgpp.kernels.native.ffi import register


def attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    cache_k: Cache,
    cache_v: Cache,
    layer: jax.Array,
    page_table: jax.Array,
    position: jax.Array,
    slot: jax.Array,
    kv_index: jax.Array,
    used: jax.Array,
    zero: jax.Array,
    *,
    scale: float,
    sinks: jax.Array | None = None,
    window: int = 0,
) -> tuple[jax.Array, Cache, Cache]:
    """(out float32 [R, H, DV], cache_k, cache_v); arguments, order and promise as in `dgpp.kernels.attention`."""
    operands = (q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, used)
    if sinks is not None or window or isinstance(cache_k, dict) or isinstance(cache_v, dict) or k.shape != v.shape:
        return reference.attention(*operands, zero, scale=scale, sinks=sinks, window=window)
    check_attention(*operands, zero)
    register(NAME, dot_module, attention_module)
    results = [jax.ShapeDtypeStruct(q.shape, jnp.float32)]
    results += [jax.ShapeDtypeStruct(cache.shape, cache.dtype) for cache in (cache_k, cache_v)]
    call = jax.ffi.ffi_call(NAME, results, input_output_aliases={3: 1, 4: 2})
    out, cache_k, cache_v = call(*operands, scale=np.float32(scale))
    return out, cache_k, cache_v
