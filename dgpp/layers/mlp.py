"""The MLP of three linears around a gated activation."""

from __future__ import annotations

from collections.abc import Mapping

import jax

from dgpp.formats import Weight
from dgpp.kernels import Kernels
from dgpp.kernels.leaves import folded
from dgpp.kernels.linear.fed import Feed
from dgpp.kernels.linear.parts import summed
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.rows import Rows
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
    """The leaves of down(silu(gate(x)) * up(x)), [4, R, D] from bf16 [R, D]. `w` is stacked over layers.

    `ranges` are the leaves of this rank's part of F. Gate and up stay float32 until their product.
    """
    down = w["down_proj"]
    gate, up = kernels.products(x, (w["gate_proj"], w["up_proj"]), layer, rows.used)
    taps("mlp.gate", lambda: summed(gate))
    taps("mlp.up", lambda: summed(up))
    act = kernels.swiglu_parts(gate, up, rows, feeds=(Feed(down, ranges),))
    taps("mlp.act", act)
    leaves = world.leaves(kernels.stored_leaves(act, down, down.place(layer), rows.used, ranges))
    taps("mlp.out", lambda: folded(leaves))
    return leaves
