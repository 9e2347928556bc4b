"""A mixture of experts with a softmax router, renormalised top-k weights, and a shared expert behind a gate.

Equations: `Qwen3_5MoeSparseMoeBlock` of transformers 5.24. Rounding points: router logits, weights, gate and up, silu
and the product are bf16; the outputs of all experts stay float32 and are added in float32 within a leaf, whose sum is
rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels import Kernels
from dgpp.kernels.leaves import folded
from dgpp.kernels.linear.fed import Feed
from dgpp.kernels.linear.parts import summed
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.rounding import rounded, sigmoid_f32
from dgpp.kernels.rows import Rows
from dgpp.kernels.stored import to_bf16
from dgpp.layers.taps import Taps
from dgpp.world import World

SITES = ("logits", "experts", "weights", "act", "shared_act", "shared_weight", "out")
"""What `moe` shows of itself, each under "moe.<site>"."""


def moe(
    w: Mapping[str, Any],
    layer: jax.Array,
    x: jax.Array,
    k: int,
    rows: Rows,
    expert_ranges: Ranges,
    shared_ranges: Ranges,
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> jax.Array:
    """The leaves of the experts' mixture of `x`, [4, R, D] from bf16 [R, D].

    `w` holds the module's tensors by their names in the checkpoint, stacked over layers: "gate" [E, D] (the router),
    "experts": {"gate_proj", "up_proj" [E, I, D], or both as "gate_up_proj" [E, 2I, D] with the gate's rows first;
    "down_proj" [E, D, I]}, "shared_expert": {"gate_proj", "up_proj" [I', D], "down_proj" [D, I']} and
    "shared_expert_gate" [1, D]. `expert_ranges` and `shared_ranges` are the leaves of the two down_proj's columns on
    this rank, one for one. Within a leaf rounded(weight * expert) is added from +0 in ascending order of id, then
    rounded(gate * shared expert).
    """
    zero, used = rows.zero, rows.used

    shared = w["shared_expert"]
    apart = (w["gate"], shared["gate_proj"], shared["up_proj"], w["shared_expert_gate"])
    router, *both, share = kernels.products(x, apart, layer, used)
    taps("moe.logits", lambda: to_bf16(summed(router)))
    experts, weights = kernels.route(router, k, zero)
    taps("moe.experts", experts)
    taps("moe.weights", weights)
    opened, down = _opened(w["experts"]), w["experts"]["down_proj"]
    places = [weight.place(layer) for weight in opened]
    feeds = (Feed(down, expert_ranges),)
    act = kernels.grouped_gated(x, experts, opened, places, used, zero, feeds=feeds)
    taps("moe.act", act)
    total = kernels.grouped_down(act, experts, weights, down, down.place(layer), used, expert_ranges, zero)

    down = shared["down_proj"]
    act = kernels.swiglu_parts(*both, rows, feeds=(Feed(down, shared_ranges),), thrice=True)
    taps("moe.shared_act", act)
    gate = to_bf16(summed(share)).astype(jnp.float32)
    gate = taps("moe.shared_weight", to_bf16(sigmoid_f32(gate, zero))).astype(jnp.float32)
    one = kernels.linear_leaves(act, down, down.place(layer), used, shared_ranges)
    leaves = world.leaves(total + rounded(one * gate, zero))
    taps("moe.out", lambda: folded(leaves))
    return leaves


def readers(w: Mapping[str, Any]) -> list[Weight]:
    """The matrices that read the rows of `moe`, for the norm before it."""
    shared = w["shared_expert"]
    return [w["gate"], *_opened(w["experts"]), shared["gate_proj"], shared["up_proj"], w["shared_expert_gate"]]


def _opened(w: Mapping[str, Any]) -> tuple[Weight, ...]:
    """Gate and up, in one or apart, as `grouped_gated` takes them."""
    return (w["gate_up_proj"],) if "gate_up_proj" in w else (w["gate_proj"], w["up_proj"])
