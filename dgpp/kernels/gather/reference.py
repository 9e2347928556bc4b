"""gather_rows in plain JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from dgpp.formats import Weight, format_named
from dgpp.formats.arrays import at
from dgpp.formats.bitstream import unpack
from dgpp.formats.dense import Dense
from dgpp.formats.fp8_tensor import FP8Tensor
from dgpp.formats.minifloat import e2m1_decode, e4m3_decode
from dgpp.formats.mxfp8 import MXFP8
from dgpp.formats.nvfp4 import GROUP, NVFP4
from dgpp.kernels.lanes import as_bits
from dgpp.kernels.rounding import divided


def gather_rows(w: Weight, layer: jax.Array, ids: jax.Array) -> jax.Array:
    """float32 [..., K]; arguments and meaning as in `dgpp.kernels.gather`. Raises ValueError naming the format."""
    format = format_named(w.format)
    if not isinstance(format, Dense | FP8Tensor | NVFP4 | MXFP8):
        raise ValueError(f"gather_rows: a table in format {w.format!r} cannot be read row by row")
    if len(w.shape) != 2:
        raise ValueError(f"gather_rows: w must have the logical shape [N, K], not {list(w.shape)}")
    if ids.dtype != jnp.int32:
        raise ValueError(f"gather_rows: ids must be int32, not {ids.dtype}")
    k = w.shape[1]
    part: dict[str, Any] = {}
    for name, packed in format.arrays(w.shape).items():
        if name not in w.arrays or not packed.resident:
            continue
        array = jnp.asarray(w.arrays[name])
        lead = (layer,) if array.ndim > len(packed.shape) else ()
        by_row = bool(packed.dims) and packed.dims[0] is not None and packed.dims[0].axis == 0
        part[name] = _take(array, lead, ids.reshape(-1)) if by_row else at(array, lead)
    return _values(format, part, k).reshape(*ids.shape, k)


def _take(array: jax.Array, lead: tuple[jax.Array, ...], ids: jax.Array) -> jax.Array:
    if array.dtype == jnp.bfloat16:
        return lax.bitcast_convert_type(_take(as_bits(array), lead, ids), jnp.bfloat16)
    return array.at[(*lead, ids)].get(mode="clip")


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
