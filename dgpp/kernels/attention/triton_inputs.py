"""attention_inputs on a GPU: one launch for all rows and heads."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels.attention import inputs
from dgpp.kernels.attention.inputs import Projected
from dgpp.kernels.attention.triton_heads import heads_of_row
from dgpp.kernels.gpu.launch import Out, launch
from dgpp.kernels.linear.parts import summed
from dgpp.kernels.rows import Rows

HEADS = 4  # of one program


def attention_inputs(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    w: Mapping[str, Weight],
    layer: jax.Array,
    angles: tuple[jax.Array, jax.Array],
    eps: float,
    rows: Rows,
    *,
    dim: int,
) -> Projected:
    """Queries, keys, values and gates; arguments and bits as in `inputs`. Heads whose size is no power of two run as
    the reference does."""
    if dim & (dim - 1) or dim < 2:
        return inputs.attention_inputs(q, k, v, w, layer, angles, eps, rows, dim=dim)
    if len({part.shape[0] for part in (q, k, v)}) > 1:  # of different formats
        q, k, v = (summed(part)[None] for part in (q, k, v))
    parts, count = q.shape[:2]
    heads, kv_heads = q.shape[2] // (2 * dim), k.shape[2] // dim
    norms = [w[name].arrays["values"] for name in ("q_norm", "k_norm")]
    outs = tuple(Out((count, n, dim), jnp.bfloat16) for n in (heads, kv_heads, kv_heads, heads))
    constants = {
        "LAYERS": norms[0].size // dim,
        "PARTS": parts,
        "R": count,
        "H": heads,
        "K": kv_heads,
        "DIM": dim,
        "HALF": angles[0].shape[-1],
        "EPS": eps,
        "HEADS": HEADS,
        "LEVELS": dim.bit_length() - 1,
    }
    grid = (count, -(-heads // HEADS) + -(-kv_heads // HEADS))
    arguments = (q, k, v, *norms, w["q_norm"].place(layer), *angles)
    return Projected(*launch(heads_of_row, arguments, outs, grid, constants, warps=4, stages=1))
