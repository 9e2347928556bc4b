"""The argument checks that every implementation of gather_rows makes while tracing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dgpp.formats import Weight, format_named
from dgpp.formats.dense import Dense
from dgpp.formats.fp8_tensor import FP8Tensor
from dgpp.formats.mxfp8 import MXFP8
from dgpp.formats.nvfp4 import NVFP4


def check_gather(w: Weight, ids: jax.Array) -> Any:
    """The format of the table. Raises ValueError naming a format that cannot be read by rows, or an argument."""
    format = format_named(w.format)
    if not isinstance(format, Dense | FP8Tensor | NVFP4 | MXFP8):
        raise ValueError(f"gather_rows: a table in format {w.format!r} cannot be read row by row")
    if len(w.shape) != 2:
        raise ValueError(f"gather_rows: w must have the logical shape [N, K], not {list(w.shape)}")
    if ids.dtype != jnp.int32:
        raise ValueError(f"gather_rows: ids must be int32, not {ids.dtype}")
    return format
