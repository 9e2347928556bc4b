"""SwiGLU: the gated activation of an MLP, and the MLP of three linears around it."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels import Kernels
from dgpp.kernels.linear.arguments import Ranges
from dgpp.kernels.rounding import exp_f32
from dgpp.layers.rounding import to_bf16
from dgpp.layers.rows import Rows
from dgpp.layers.taps import Taps
from dgpp.world import World


def silu(x: jax.Array, zero: jax.Array) -> jax.Array:
    """x / (1 + e^-x) in float32, from any type."""
    h = x.astype(jnp.float32)
    return h / (1.0 + exp_f32(-h, zero))


def swiglu(gate: jax.Array, up: jax.Array, zero: jax.Array) -> jax.Array:
    """silu(gate) * up, bf16 [R, F] from float32 [R, F]; one rounding at the end."""
    return to_bf16(silu(gate, zero) * up)


def swiglu_bf16(gate: jax.Array, up: jax.Array, zero: jax.Array) -> jax.Array:
    """bf16(bf16(silu(bf16(gate))) * bf16(up)) [..., F]: the rounding points of the MoE experts of transformers."""
    opened = to_bf16(silu(to_bf16(gate), zero)).astype(jnp.float32)
    return to_bf16(opened * to_bf16(up).astype(jnp.float32))


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
