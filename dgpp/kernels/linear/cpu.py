"""linear on the CPU: a native kernel of the order of `dgpp.kernels.linear` for BF16, else the reference."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.formats import Weight
from dgpp.kernels.lanes import LANES
from dgpp.kernels.linear import reference
from dgpp.kernels.linear.arguments import check_linear
from dgpp.kernels.linear.native import NAME, linear_module
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.native.dot import dot_module
from dgpp.kernels.native.ffi import register

NATIVE = ("bf16",)
"""The weight formats that the native kernel reads."""


def linear(x: jax.Array, w: Weight, layer: jax.Array, used: jax.Array) -> jax.Array:
    """float32 [R, N]; arguments, order and promise as in `dgpp.kernels.linear`."""
    if w.format not in NATIVE:
        return reference.linear(x, w, layer, used)
    return _call(x, w, layer, used, check_linear(x, w, layer, used))[0]


def linear_leaves(x: jax.Array, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges) -> jax.Array:
    """float32 [len(ranges), R, N]; arguments, order and promise as in `dgpp.kernels.linear`."""
    if w.format not in NATIVE:
        return reference.linear_leaves(x, w, layer, used, ranges)
    return _call(x, w, layer, used, check_linear(x, w, layer, used, ranges))


def _call(x: jax.Array, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges) -> jax.Array:
    register(NAME, dot_module, linear_module)
    values = w.arrays["values"]
    stack = values if values.ndim == 3 else values[None]
    lengths = [-(-(stop - start) // LANES) * LANES for start, stop in ranges]
    offsets = np.cumsum([0, *lengths])
    table = np.array([(start, stop, offset) for (start, stop), offset in zip(ranges, offsets, strict=False)], np.int32)
    out = jax.ShapeDtypeStruct((len(ranges), x.shape[0], stack.shape[1]), jnp.float32)
    # The float32 copy of x is a result only so that XLA, which plans its memory once, provides the space for it.
    converted = jax.ShapeDtypeStruct((x.shape[0], int(offsets[-1])), jnp.float32)
    call = jax.ffi.ffi_call(NAME, (out, converted))
    result: jax.Array = call(x, stack, layer, used, ranges=table.reshape(-1))[0]
    return result
