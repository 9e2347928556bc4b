"""What attention takes, from the projections of a row: heads apart, q and k normed and turned, the gate's logits.

    attention_inputs(q, k, v, w, layer, angles, eps, rows, dim=) -> Projected

Shapes: q float32 [P, R, 2 * H * Dh], of each head Dh query values, then Dh gate values; k, v [P, R, K * Dh], parts of
products; w holds q_norm and k_norm [Dh], stacked over layers; angles are the rows' cosines and sines, float32
[R, Dr/2]. Every kernel gives the same bits, with roots and divisions correctly rounded.

Source: `Qwen3_5Attention` of transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels.linear.parts import summed
from dgpp.kernels.norm.reference import rms_norm_1p
from dgpp.kernels.rope.reference import apply_mrope
from dgpp.kernels.rows import Rows
from dgpp.kernels.stacks import values_of
from dgpp.kernels.stored import to_bf16


class Projected(NamedTuple):
    """Queries, keys, values and gates of a batch: stored type [R, H, Dh], [R, K, Dh] twice, [R, H, Dh]."""

    q: jax.Array
    k: jax.Array
    v: jax.Array
    gate: jax.Array


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
    """Queries, keys, values and gates, in plain JAX."""

    def heads(parts: jax.Array, size: int) -> jax.Array:
        y = to_bf16(summed(parts))
        return y.reshape(y.shape[0], -1, size)

    def turned(y: jax.Array, norm: str) -> jax.Array:
        return apply_mrope(rms_norm_1p(y, values_of(w[norm], layer), eps, rows.zero), *angles, rows.zero)

    query, gate = jnp.split(heads(q, 2 * dim), 2, axis=-1)
    return Projected(turned(query, "q_norm"), turned(heads(k, dim), "k_norm"), heads(v, dim), gate)
