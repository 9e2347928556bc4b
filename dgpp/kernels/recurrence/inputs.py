"""What gated_delta takes, from the projections of a row: the causal convolution, its silu, the l2 norms, the gates.

    delta_inputs(qkv, a, b, w, layer, ring, state_layer, rows, keys=, dk=) -> (DeltaInputs, ring)

Shapes (K key heads of dk, V value heads of dv, C = 2 K dk + V dv): qkv float32 [P, R, C], a and b [P, R, V], parts of
products; w holds conv1d [C, 1, width], A_log and dt_bias [V], stacked over layers; ring stored type [L, S, D, C], the
convolution's earlier inputs. Every kernel gives the same bits, with roots and divisions correctly rounded.

    mixed = bf16(silu(bf16(conv(bf16(qkv)))))     q = l2(mixed) / sqrt(dk), k = l2(mixed), v = mixed
    beta = sigmoid(bf16(b))                        g = -exp(A_log) * softplus(bf16(a) + dt_bias)

Source: `Qwen3_5GatedDeltaNet` of transformers 5.24.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels.gated.reference import silu
from dgpp.kernels.linear.parts import summed
from dgpp.kernels.norm.reference import l2_norm
from dgpp.kernels.rounding import exp_f32, rounded, sigmoid_f32, softplus_f32
from dgpp.kernels.rows import Rows
from dgpp.kernels.stacks import values_of
from dgpp.kernels.stored import to_bf16
from dgpp.kernels.window import causal_conv, window


class DeltaInputs(NamedTuple):
    """The inputs of gated_delta, and the two activations on the way that can be looked at."""

    q: jax.Array  # float32 [R, K, dk]
    k: jax.Array  # float32 [R, K, dk]
    v: jax.Array  # stored type [R, V, dv]
    g: jax.Array  # float32 [R, V]
    beta: jax.Array  # float32 [R, V]
    qkv: jax.Array  # stored type [R, C]
    conv: jax.Array  # stored type [R, C]


def delta_inputs(
    qkv: jax.Array,
    a: jax.Array,
    b: jax.Array,
    w: Mapping[str, Weight],
    layer: jax.Array,
    ring: jax.Array,
    state_layer: jax.Array,
    rows: Rows,
    *,
    keys: int,
    dk: int,
) -> tuple[DeltaInputs, jax.Array]:
    """The inputs and the ring with the batch's rows put in, in plain JAX."""
    zero, width = rows.zero, w["conv1d"].shape[-1]
    here = to_bf16(summed(qkv))
    before, ring = window(here, ring, state_layer, rows, tuple(range(width - 1, 0, -1)))
    mixed = to_bf16(causal_conv([*before, here], values_of(w["conv1d"], layer), zero))
    mixed = to_bf16(silu(mixed, zero))
    q, k, v = jnp.split(mixed, (keys * dk, 2 * keys * dk), axis=1)
    q = rounded(l2_norm(q.reshape(-1, keys, dk), zero) * jnp.float32(dk**-0.5), zero)
    k = l2_norm(k.reshape(-1, keys, dk), zero)
    values = a.shape[-1]
    beta = sigmoid_f32(to_bf16(summed(b)).astype(jnp.float32), zero)
    rate = exp_f32(values_of(w["A_log"], layer).astype(jnp.float32), zero)
    step = to_bf16(summed(a)).astype(jnp.float32) + values_of(w["dt_bias"], layer).astype(jnp.float32)
    g = rounded(-(rate * softplus_f32(step, zero)), zero)
    return DeltaInputs(q, k, v.reshape(len(v), values, -1), g, beta, here, mixed), ring
