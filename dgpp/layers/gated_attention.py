"""Grouped-query attention whose output passes a gate that comes out of the query projection.

Equations: `Qwen3_5Attention` of transformers 5.24. Rounding points: the projections, q and k after norm and after
rotation, the mixed value, the gate's sigmoid and their product are bf16; scores and sums are float32 as
`dgpp.kernels.attention` orders them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels import Kernels
from dgpp.kernels.linear import Ranges
from dgpp.kernels.norm.reference import rms_norm_1p
from dgpp.kernels.rounding import sigmoid_f32
from dgpp.kernels.rows import Rows
from dgpp.kernels.stored import to_bf16
from dgpp.layers.rope import apply_mrope
from dgpp.layers.stacks import values_of
from dgpp.layers.taps import Taps
from dgpp.world import World

SITES = ("q", "k", "v", "gate", "mix", "gated", "out")
"""What `gated_attention` shows of itself, each under "attn.<site>"."""


class AttentionConfig(Protocol):
    """The fields of a config that shape the mixer, named as in config.json."""

    @property
    def head_dim(self) -> int: ...
    @property
    def rms_norm_eps(self) -> float: ...


class Projected(NamedTuple):
    """Queries, keys, values and gates of a batch: bf16 [R, H, Dh], [R, K, Dh] twice, [R, H, Dh]."""

    q: jax.Array
    k: jax.Array
    v: jax.Array
    gate: jax.Array


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
    """(bf16 [R, D], state) from the normed hidden state `x` bf16 [R, D]; causal attention over the planes "k", "v".

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

    def heads(name: str, dim: int) -> jax.Array:  # bf16 [R, heads of this rank, dim]
        y = to_bf16(kernels.linear(x, w[name], w[name].place(layer), rows.used))
        return y.reshape(y.shape[0], -1, dim)

    def turned(y: jax.Array, norm: str) -> jax.Array:
        normed = rms_norm_1p(y, values_of(w[norm], layer), c.rms_norm_eps, rows.zero)
        return apply_mrope(normed, *angles, rows.zero)

    q, gate = jnp.split(heads("q_proj", 2 * c.head_dim), 2, axis=-1)
    q = taps("attn.q", turned(q, "q_norm"))
    k = taps("attn.k", turned(heads("k_proj", c.head_dim), "k_norm"))
    return Projected(q, k, taps("attn.v", heads("v_proj", c.head_dim)), taps("attn.gate", gate))


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
    """o_proj(bf16(mix) * bf16(sigmoid(gate))), bf16 [R, D], from the mixed values float32 [R, H, Dh]."""
    mix = taps("attn.mix", to_bf16(mix)).astype(jnp.float32)
    opened = to_bf16(sigmoid_f32(gate.astype(jnp.float32), rows.zero)).astype(jnp.float32)
    gated = taps("attn.gated", to_bf16(mix * opened).reshape(mix.shape[0], -1))
    leaves = to_bf16(kernels.linear_leaves(gated, o_proj, o_proj.place(layer), rows.used, out_ranges))
    return taps("attn.out", world.fold(leaves))
