"""Gated activations in plain JAX: the products that open or close a value elementwise."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from dgpp.kernels.linear.fed import Feed
from dgpp.kernels.linear.parts import summed
from dgpp.kernels.rounding import exp_f32, sigmoid_f32
from dgpp.kernels.rows import Rows
from dgpp.kernels.stored import to_bf16


def swiglu_parts(
    gate: jax.Array, up: jax.Array, rows: Rows, feeds: Sequence[Feed] = (), *, thrice: bool = False
) -> jax.Array:
    """`swiglu`, or `swiglu_bf16` if rounded `thrice`, of two products, bf16 [R, F] from their parts f32 [P, R, F]."""
    return (swiglu_bf16 if thrice else swiglu)(summed(gate), summed(up), rows.zero)


def opened(mix: jax.Array, gate: jax.Array, rows: Rows, feeds: Sequence[Feed] = ()) -> jax.Array:
    """bf16(bf16(mix) * bf16(sigmoid(gate))): bf16 [R, H * Dh] from float32 and bf16 [R, H, Dh]."""
    value = to_bf16(mix).astype(jnp.float32)
    factor = to_bf16(sigmoid_f32(gate.astype(jnp.float32), rows.zero)).astype(jnp.float32)
    return to_bf16(value * factor).reshape(mix.shape[0], -1)


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
