"""The gated DeltaNet mixer: causal convolution, delta rule with a gated decay, gated norm, output projection.

Equations: "Gated Delta Networks: Improving Mamba2 with Delta Rule" (arXiv:2412.06464) in the form of
`Qwen3_5GatedDeltaNet` and `Qwen4ExpTextGatedDeltaNet` of transformers 5.24. Rounding points: the projections, the
convolution, its silu, the mixed value o and the three points of the gated norm are bf16; q and k after their l2 norm,
the gates and the state are float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels import Kernels
from dgpp.kernels.gated.reference import silu
from dgpp.kernels.linear import Ranges
from dgpp.kernels.norm.reference import gated_rms_norm, l2_norm
from dgpp.kernels.recurrence import DeltaState
from dgpp.kernels.rounding import exp_f32, rounded, sigmoid_f32, softplus_f32
from dgpp.kernels.rows import Phase, Rows
from dgpp.kernels.stored import to_bf16
from dgpp.kernels.window import causal_conv, window
from dgpp.layers.stacks import values_of
from dgpp.layers.taps import Taps
from dgpp.world import World

SITES = ("qkv", "conv", "q", "k", "v", "z", "g", "beta", "o", "norm", "out")
"""What `delta_net` shows of itself, each under "delta.<site>"."""

STATE = ("delta.s", "delta.k", "delta.v", "delta.gates", "delta.conv")
"""Its state: a committed value [V, dk, dv] f32, three rings of the inputs since (before = 0): f32 [K, dk], stored type
[V, dv], f32 [V, 2], and the ring of convolution inputs, stored type [C] (before = kernel width - 1)."""


class DeltaNetConfig(Protocol):
    """The fields of a config that shape the mixer, named as in config.json."""

    @property
    def linear_key_head_dim(self) -> int: ...
    @property
    def linear_value_head_dim(self) -> int: ...
    @property
    def linear_conv_kernel_dim(self) -> int: ...
    @property
    def rms_norm_eps(self) -> float: ...
    @property
    def output_gate_type(self) -> str: ...


def delta_net(
    c: DeltaNetConfig,
    w: Mapping[str, Weight],
    layer: jax.Array,
    x: jax.Array,
    rows: Rows,
    state: Mapping[str, jax.Array],
    state_layer: jax.Array,
    key_index: jax.Array,
    out_ranges: Ranges,
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """(bf16 [R, D], state) from the normed hidden state `x` bf16 [R, D].

    `w` holds the module's tensors by their names in the checkpoint, stacked over layers: in_proj_qkv [2*K*dk + V*dv, D]
    (q, k and v rows, each head by head), in_proj_z [V*dv, D], in_proj_a and in_proj_b [V, D], conv1d [C, 1, width],
    A_log, dt_bias [V], norm [dv], out_proj [D, V*dv]. Of a rank they hold its heads, which are counted here.
    `layer` is the layer's number and `state_layer` its index in the state's arrays (`STATE`). `key_index` int32 [V] is
    the local key head of every local value head, and `out_ranges` are the leaves of out_proj's columns on this rank.

    beta is the sigmoid in float32 of a bf16 logit and stays float32, as in the C++ engine; transformers rounds it to
    bf16.
    """
    zero, used = rows.zero, rows.used
    dk, dv, width = c.linear_key_head_dim, c.linear_value_head_dim, c.linear_conv_kernel_dim

    def project(name: str) -> jax.Array:
        return to_bf16(kernels.linear(x, w[name], w[name].place(layer), used))

    qkv, z = taps("delta.qkv", project("in_proj_qkv")), taps("delta.z", project("in_proj_z"))
    values = z.shape[1] // dv
    keys = (qkv.shape[1] - values * dv) // (2 * dk)

    before, conv = window(qkv, state["delta.conv"], state_layer, rows, tuple(range(width - 1, 0, -1)))
    mixed = to_bf16(causal_conv([*before, qkv], values_of(w["conv1d"], layer), zero))
    mixed = taps("delta.conv", to_bf16(silu(mixed, zero)))
    q, k, v = jnp.split(mixed, (keys * dk, 2 * keys * dk), axis=1)
    q = taps("delta.q", rounded(l2_norm(q.reshape(-1, keys, dk), zero) * jnp.float32(dk**-0.5), zero))
    k = taps("delta.k", l2_norm(k.reshape(-1, keys, dk), zero))
    v = taps("delta.v", v.reshape(-1, values, dv))

    beta = taps("delta.beta", sigmoid_f32(project("in_proj_b").astype(jnp.float32), zero))
    rate = exp_f32(values_of(w["A_log"], layer).astype(jnp.float32), zero)
    step = project("in_proj_a").astype(jnp.float32) + values_of(w["dt_bias"], layer).astype(jnp.float32)
    g = taps("delta.g", rounded(-(rate * softplus_f32(step, zero)), zero))

    held = DeltaState(*(state[f"delta.{part}"] for part in ("s", "k", "v", "gates")))
    o, held = kernels.gated_delta(
        q, k, v, g, beta, held, state_layer, rows.position, rows.slot, rows.phase != Phase.VERIFY, rows.last,
        rows.replay, used, key_index, zero,
    )  # fmt: skip
    o = taps("delta.o", to_bf16(o))
    norm = values_of(w["norm"], layer)
    y = gated_rms_norm(o, z.reshape(o.shape), norm, c.rms_norm_eps, c.output_gate_type, zero)
    y = taps("delta.norm", y.reshape(y.shape[0], -1))
    out_proj = w["out_proj"]
    leaves = to_bf16(kernels.linear_leaves(y, out_proj, out_proj.place(layer), used, out_ranges))
    after: dict[str, Any] = {"delta.s": held.s, "delta.k": held.k, "delta.v": held.v, "delta.gates": held.gates}
    return taps("delta.out", world.fold(leaves)), {**state, **after, "delta.conv": conv}
