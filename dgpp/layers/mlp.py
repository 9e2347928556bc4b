"""The gated activation of an MLP."""

from __future__ import annotations

import jax

from dgpp.kernels.rounding import exp_f32
from dgpp.layers.rounding import to_bf16


def swiglu(gate: jax.Array, up: jax.Array, zero: jax.Array) -> jax.Array:
    """silu(gate) * up, bf16 [R, F] from float32 [R, F]: silu(g) = g / (1 + exp(-g)); one rounding at the end."""
    return to_bf16(gate / (1.0 + exp_f32(-gate, zero)) * up)
