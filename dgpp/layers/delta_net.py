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

from dgpp.formats import Weight
from dgpp.kernels import Kernels
from dgpp.kernels.leaves import folded
from dgpp.kernels.linear import Ranges
from dgpp.kernels.linear.fed import Feed
from dgpp.kernels.linear.parts import summed
from dgpp.kernels.recurrence import DeltaState
from dgpp.kernels.rows import Rows
from dgpp.kernels.stored import to_bf16
from dgpp.layers.taps import Taps
from dgpp.world import World

SITES = ("qkv", "conv", "q", "k", "v", "z", "g", "beta", "o", "norm", "out")
"""What `delta_net` shows of itself, each under "delta.<site>"."""

READERS = ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b")
"""The matrices that read its input."""

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
    """(the leaves of the output, [4, R, D]; state) from the normed hidden state `x` bf16 [R, D].

    `w` holds the module's tensors by their names in the checkpoint, stacked over layers: in_proj_qkv [2*K*dk + V*dv, D]
    (q, k and v rows, each head by head), in_proj_z [V*dv, D], in_proj_a and in_proj_b [V, D], conv1d [C, 1, width],
    A_log, dt_bias [V], norm [dv], out_proj [D, V*dv]. Of a rank they hold its heads, which are counted here.
    `layer` is the layer's number and `state_layer` its index in the state's arrays (`STATE`). `key_index` int32 [V] is
    the local key head of every local value head, and `out_ranges` are the leaves of out_proj's columns on this rank.

    beta is the sigmoid in float32 of a bf16 logit and stays float32, as in the C++ engine; transformers rounds it to
    bf16.
    """
    used = rows.used
    dk, dv = c.linear_key_head_dim, c.linear_value_head_dim
    qkv, z, a, b = kernels.products(x, [w[name] for name in READERS], layer, used)
    taps("delta.z", lambda: to_bf16(summed(z)))
    values = z.shape[-1] // dv
    keys = (qkv.shape[-1] - values * dv) // (2 * dk)
    made, conv = kernels.delta_inputs(qkv, a, b, w, layer, state["delta.conv"], state_layer, rows, keys=keys, dk=dk)
    for site, value in made._asdict().items():
        taps(f"delta.{site}", value)

    held = DeltaState(*(state[f"delta.{part}"] for part in ("s", "k", "v", "gates")))
    out_proj = w["out_proj"]
    o, y, held = kernels.gated_delta_normed(
        made, z, held, state_layer, w["norm"], layer, c.rms_norm_eps, c.output_gate_type, rows, key_index,
        feeds=(Feed(out_proj, out_ranges),),
    )  # fmt: skip
    taps("delta.o", lambda: to_bf16(o))
    taps("delta.norm", y)
    leaves = world.leaves(kernels.stored_leaves(y, out_proj, out_proj.place(layer), used, out_ranges))
    taps("delta.out", lambda: folded(leaves))
    after: dict[str, Any] = {"delta.s": held.s, "delta.k": held.k, "delta.v": held.v, "delta.gates": held.gates}
    return leaves, {**state, **after, "delta.conv": conv}
