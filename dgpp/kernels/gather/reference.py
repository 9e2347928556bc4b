"""gather_rows in plain JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dgpp.formats import Weight
from dgpp.formats.arrays import at
from dgpp.formats.bitstream import unpack
from dgpp.formats.dense import Dense
from dgpp.formats.minifloat import e2m1_decode, e4m3_decode
from dgpp.formats.nvfp4 import GROUP, NVFP4
from dgpp.kernels.gather.arguments import check_gather
from dgpp.kernels.lanes import as_bits
from dgpp.kernels.rounding import divided


def gather_rows(w: Weight, layer: jax.Array, ids: jax.Array) -> jax.Array:
    """float32 [..., K]; arguments and meaning as in `dgpp.kernels.gather`. Raises ValueError naming the format."""
    format, k = check_gather(w, ids), w.shape[1]
    rows = jnp.clip(ids.reshape(-1), 0, w.shape[0] - 1)  # an array would count negative numbers from its end
    part: dict[str, Any] = {}
    for name, packed in format.arrays(w.shape).items():
        if name not in w.arrays or not packed.resident:
            continue
        array = jnp.asarray(w.arrays[name])
        lead = (layer,) if array.ndim > len(packed.shape) else ()
        by_row = bool(packed.dims) and packed.dims[0] is not None and packed.dims[0].axis == 0
        part[name] = _take(array, lead, rows) if by_row else at(array, lead)
    return _values(format, part, k).reshape(*ids.shape, k)


def _take(array: jax.Array, lead: tuple[jax.Array, ...], rows: jax.Array) -> jax.Array:
    if array.dtype == jnp.bfloat16:
        return lax.bitcast_convert_type(_take(as_bits(array), lead, rows), jnp.bfloat16)
    return array.at[(*lead, rows)].get(mode="clip")


def _values(format: Any, part: dict[str, Any], k: int) -> jax.Array:
    """The rows in `part` as the format's decode has them, float32 [T, K]."""
    if isinstance(format, Dense):
        return part["values"].astype(jnp.float32)
    if isinstance(format, NVFP4):
        total = part["global_scale"].reshape(())
        scale = e4m3_decode(part["scale"])
        scale = divided(scale, total) if format.divisor else scale * total
        values = e2m1_decode(unpack(part["codes"], 4, k)) * jnp.repeat(scale, GROUP, axis=-1)
    else:
        values = format.epilogue(format.operand(part, (0, k)), part, (0, k))
    return lax.reduce_precision(values, exponent_bits=8, mantissa_bits=7)
