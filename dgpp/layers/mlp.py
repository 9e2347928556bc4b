"""The MLP of three linears around a gated activation."""

from __future__ import annotations

from collections.abc import Mapping

import jax

from dgpp.formats import Weight
from dgpp.kernels import Kernels
from dgpp.kernels.gated.reference import swiglu
from dgpp.kernels.linear.arguments import Ranges
from dgpp.kernels.rows import Rows
from dgpp.kernels.stored import to_bf16
from dgpp.layers.taps import Taps
from dgpp.world import World


def mlp(
    w: Mapping[str, Weight],
    layer: jax.Array,
    x: jax.Array,
    rows: Rows,
    ranges: Ranges,
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> jax.Array:
    """down(silu(gate(x)) * up(x)), bf16 [R, D] from bf16 [R, D]. `w` is stacked over layers; `layer` picks one.

    `ranges` are the leaves of this rank's part of F. Gate and up stay float32 until their product.
    """
    gate_w, up_w, down_w = w["gate_proj"], w["up_proj"], w["down_proj"]
    gate = taps("mlp.gate", kernels.linear(x, gate_w, gate_w.place(layer), rows.used))
    up = taps("mlp.up", kernels.linear(x, up_w, up_w.place(layer), rows.used))
    act = taps("mlp.act", swiglu(gate, up, rows.zero))
    leaves = to_bf16(kernels.linear_leaves(act, down_w, down_w.place(layer), rows.used, ranges))
    return taps("mlp.out", world.fold(leaves))
