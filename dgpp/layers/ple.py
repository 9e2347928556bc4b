"""The per-layer embedding: hashed n-grams that gate themselves into the branches of the residual stream.

Equations: `Qwen4ExpTextPLELayer` of transformers 5.24; the key and value projections are row-parallel over hash heads,
four leaves that are folded. Rounding points: projections, norms, every product of key and query, their sum,
the quotient, the root, the sigmoid, u, the convolution, its silu and both sums are bf16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels import Kernels
from dgpp.kernels.gated.reference import silu
from dgpp.kernels.leaves import folded
from dgpp.kernels.linear import Ranges
from dgpp.kernels.norm.reference import group_rms_norm_1p, tree_sum
from dgpp.kernels.rounding import divided, rounded, sigmoid_f32
from dgpp.kernels.rows import Rows
from dgpp.kernels.stacks import values_of
from dgpp.kernels.stored import add_bf16, to_bf16
from dgpp.kernels.window import causal_conv, window
from dgpp.layers.taps import Taps
from dgpp.world import World

SITES = ("key", "value", "gate", "u", "conv", "out")
"""What `ple` shows of itself, each under "ple.<site>"."""

STATE = ("ple.conv",)
"""Its state: the ring of normed u, stored type [count * D] (before = (kernel width - 1) * dilation)."""

SMALLEST = 1e-6  # the root is taken of at least this


def table_rows(w: Mapping[str, Weight], layer: jax.Array, ids: jax.Array, kernels: Kernels) -> jax.Array:
    """The rows of a resident table, bf16 [R, h * K]: those of `ids` int32 [R, h] one after the other."""
    table = w["ngram_embedding"]
    return to_bf16(kernels.gather_rows(table, table.place(layer), ids).reshape(ids.shape[0], -1))


def ple(
    w: Mapping[str, Weight],
    layer: jax.Array,
    branches: jax.Array,
    embedded: jax.Array,
    count: int,
    dilation: int,
    eps: float,
    rows: Rows,
    state: Mapping[str, jax.Array],
    state_layer: jax.Array,
    ranges: Ranges,
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """(branches + PLE, bf16 [R, count * D]; state).

    `embedded` is bf16 [R, E], the rank's hash heads' rows (`table_rows`, or read from a mapped table); `ranges` are the
    leaves of its columns. `w` holds key_proj [count * D, E], value_proj [D, E], norm_key, norm_query, norm_conv
    [count * D] and conv1d [count * D, 1, width]. `dilation` is the config's ngram_size.

        k = norm(e key^T);  v = e value^T;  q = norm(branches);  g_i = <k_i, q_i> / sqrt(D)
        u_i = sigmoid(sign(g_i) sqrt(max(|g_i|, 1e-6))) v;  PLE = u + silu(conv(norm(u)))
    """
    zero = rows.zero

    def project(name: str) -> jax.Array:
        own = kernels.stored_leaves(embedded, w[name], w[name].place(layer), rows.used, ranges)
        return folded(world.leaves(own))

    def norm(x: jax.Array, name: str) -> jax.Array:
        return group_rms_norm_1p(x, values_of(w[name], layer), count, eps, zero)

    key, value = taps("ple.key", norm(project("key_proj"), "norm_key")), taps("ple.value", project("value_proj"))
    gate = taps("ple.gate", _gate(key, norm(branches, "norm_query"), count, zero))
    u = to_bf16(gate.astype(jnp.float32)[..., None] * value.astype(jnp.float32)[:, None]).reshape(branches.shape)
    taps("ple.u", u)

    conv = values_of(w["conv1d"], layer)
    normed = norm(u, "norm_conv")
    back = tuple(dilation * i for i in range(conv.shape[-1] - 1, 0, -1))
    before, ring = window(normed, state["ple.conv"], state_layer, rows, back)
    mixed = to_bf16(causal_conv([*before, normed], conv, zero))
    mixed = taps("ple.conv", to_bf16(silu(mixed, zero)))
    return add_bf16(branches, taps("ple.out", add_bf16(u, mixed))), {**state, "ple.conv": ring}


def _gate(key: jax.Array, query: jax.Array, count: int, zero: jax.Array) -> jax.Array:
    """The sigmoid that opens each branch, bf16 [R, count]."""

    def stored(x: jax.Array) -> jax.Array:  # a bf16 value, as float32
        return rounded(to_bf16(x).astype(jnp.float32), zero)

    products = stored(key.astype(jnp.float32) * query.astype(jnp.float32)).reshape(key.shape[0], count, -1)
    total = stored(tree_sum(products))
    g = stored(divided(total, jnp.float32(math.sqrt(products.shape[-1]))))
    root = stored(jnp.sqrt(stored(jnp.maximum(jnp.abs(g), SMALLEST))))
    return to_bf16(sigmoid_f32(jnp.sign(g) * root, zero))
