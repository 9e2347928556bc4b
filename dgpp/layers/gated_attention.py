"""Grouped-query attention whose output passes a gate that comes out of the query projection.

Equations: `Qwen3_5Attention` of transformers 5.24. Rounding points: the projections, q and k after norm and after
rotation, the mixed value, the gate's sigmoid and their product are bf16; scores and sums are float32 as
`dgpp.kernels.attention` orders them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import jax

from dgpp.formats import Weight
from dgpp.kernels import Kernels
from dgpp.kernels.attention.inputs import Projected
from dgpp.kernels.leaves import folded
from dgpp.kernels.linear import Ranges
from dgpp.kernels.linear.fed import Feed
from dgpp.kernels.rows import Rows
from dgpp.kernels.stored import to_bf16
from dgpp.layers.taps import Taps
from dgpp.world import World

SITES = ("q", "k", "v", "gate", "mix", "gated", "out")
"""What `gated_attention` shows of itself, each under "attn.<site>"."""


READERS = ("q_proj", "k_proj", "v_proj")
"""The matrices that read its input."""


class AttentionConfig(Protocol):
    """The fields of a config that shape the mixer, named as in config.json."""

    @property
    def head_dim(self) -> int: ...
    @property
    def rms_norm_eps(self) -> float: ...


def gated_attention(
    c: AttentionConfig,
    w: Mapping[str, Weight],
    layer: jax.Array,
    x: jax.Array,
    angles: tuple[jax.Array, jax.Array],
    rows: Rows,
    state: Mapping[str, jax.Array],
    state_layer: jax.Array,
    kv_index: jax.Array,
    out_ranges: Ranges,
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """(the leaves of the output, [4, R, D]; state) from the normed hidden state `x` bf16 [R, D]: causal attention over
    the planes "k", "v".

    `w` holds q_proj [2*H*Dh, D], k_proj, v_proj [K*Dh, D], q_norm, k_norm [Dh] and o_proj [D, H*Dh], stacked over
    layers. `angles` are the rows' cosines and sines (`Rope.angles`). `layer` is the layer's number and `state_layer`
    its index in the planes. `kv_index` int32 [H] is the local K/V head of every local query head, and `out_ranges` are
    the leaves of o_proj's columns on this rank.
    """
    p = project(c, w, layer, x, angles, rows, kernels, taps)
    mix, k_plane, v_plane = kernels.attention(
        p.q, p.k, p.v, state["k"], state["v"], state_layer, rows.page_table, rows.position, rows.slot, kv_index,
        scale=c.head_dim**-0.5, zero=rows.zero, used=rows.used,
    )  # fmt: skip
    out = gated_output(mix, p.gate, w["o_proj"], layer, out_ranges, rows, world, kernels, taps)
    return out, {**state, "k": k_plane, "v": v_plane}


def project(
    c: AttentionConfig,
    w: Mapping[str, Weight],
    layer: jax.Array,
    x: jax.Array,
    angles: tuple[jax.Array, jax.Array],
    rows: Rows,
    kernels: Kernels,
    taps: Taps,
) -> Projected:
    """q and k normed and turned, v raw, and the gate's logits. Each head of q_proj has Dh query rows, then Dh gate
    rows."""
    q, k, v = kernels.products(x, [w[name] for name in READERS], layer, rows.used)
    p: Projected = kernels.attention_inputs(q, k, v, w, layer, angles, c.rms_norm_eps, rows, dim=c.head_dim)
    for site, value in p._asdict().items():
        taps(f"attn.{site}", value)
    return p


def gated_output(
    mix: jax.Array,
    gate: jax.Array,
    o_proj: Weight,
    layer: jax.Array,
    out_ranges: Ranges,
    rows: Rows,
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> jax.Array:
    """The leaves of o_proj(bf16(mix) * bf16(sigmoid(gate))), [4, R, D], from the mixed values float32 [R, H, Dh]."""
    taps("attn.mix", lambda: to_bf16(mix))
    gated = kernels.opened(mix, gate, rows, feeds=(Feed(o_proj, out_ranges),))
    taps("attn.gated", gated)
    leaves = world.leaves(kernels.stored_leaves(gated, o_proj, o_proj.place(layer), rows.used, out_ranges))
    taps("attn.out", lambda: folded(leaves))
    return leaves
