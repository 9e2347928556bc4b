"""gather_rows on a GPU: one launch for all rows. XLA's own division is not correctly rounded there, which the scales of
an NVFP4 table would show."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.formats import mxfp8 as eights
from dgpp.formats import nvfp4 as fours
from dgpp.formats.fp8_tensor import FP8Tensor
from dgpp.formats.mxfp8 import MXFP8
from dgpp.formats.nvfp4 import NVFP4
from dgpp.kernels.gather.arguments import check_gather
from dgpp.kernels.gather.triton_rows import table_rows
from dgpp.kernels.gpu.launch import Out, launch

COLUMNS = 1024  # of one program at most
KINDS = ("plain", "fp8", "mxfp8", "nvfp4 times", "nvfp4 divided")
"""How rows are decoded, in the numbering of `triton_rows`."""


def gather_rows(w: Weight, layer: jax.Array, ids: jax.Array) -> jax.Array:
    """float32 [..., K]; arguments and values as in `dgpp.kernels.gather`."""
    group = 1
    # The kernel takes three arrays; what a kind lacks it does not read.
    match check_gather(w, ids):
        case FP8Tensor():
            kind, fields = "fp8", ("codes", "scale", "scale")
        case MXFP8():
            kind, fields, group = "mxfp8", ("codes", "scale", "scale"), eights.GROUP
        case NVFP4(divisor=divisor):
            kind, group = "nvfp4 divided" if divisor else "nvfp4 times", fours.GROUP
            fields = ("codes", "scale", "global_scale")
        case _:
            kind, fields = "plain", ("values", "values", "values")
    arrays = [w.arrays[field] for field in fields]
    rows, k = w.shape
    block = min(COLUMNS, 1 << (k - 1).bit_length())
    (out,) = launch(
        table_rows,
        (ids.reshape(-1), *arrays, layer),
        (Out((ids.size, k), jnp.float32),),
        (ids.size, -(-k // block)),
        {
            "LAYERS": arrays[0].shape[0] if arrays[0].ndim > 2 else 1,
            "N": rows,
            "K": k,
            "KIND": KINDS.index(kind),
            "GROUP": group,
            "BLOCK": block,
        },
        warps=4,
        stages=1,
    )
    return out.reshape(*ids.shape, k)
