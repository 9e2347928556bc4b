"""The gated residual: a residual stream of several branches, mixed into a block and fed back by it.

Equations: `Qwen4ExpTextGatedResidual` of transformers 5.24, after "Hyper-Connections" (arXiv:2409.19606). Rounding
points: the norm, the outputs of the three linears, silu, both sigmoids, the gated branches, their mean, and both
operations of the feedback are bf16.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels import Kernels
from dgpp.kernels.gated.reference import silu
from dgpp.kernels.norm.reference import group_rms_norm_1p
from dgpp.kernels.rounding import rounded, sigmoid_f32
from dgpp.kernels.rows import Rows
from dgpp.kernels.stacks import values_of
from dgpp.kernels.stored import add_bf16, to_bf16
from dgpp.layers.taps import Taps

SITES = ("norm", "mix", "inject")
"""What `mix_branches` shows of itself, each under "<site>.<name>"."""


def spread_branches(x: jax.Array, count: int) -> jax.Array:
    """`x` [R, D] copied to every branch: [R, count * D], branch after branch."""
    return jnp.tile(x, (1, count))


def mix_branches(
    w: Mapping[str, Weight],
    layer: jax.Array,
    branches: jax.Array,
    count: int,
    eps: float,
    rows: Rows,
    kernels: Kernels,
    taps: Taps,
    site: str,
) -> tuple[jax.Array, jax.Array | None]:
    """(x bf16 [R, D], what the block reads; s bf16 [R, count], how strongly each branch takes its output).

    `branches` is bf16 [R, count * D]. `w` holds hc_norm [count * D], input_mix_weight_down [r, count * D],
    input_mix_weight_up [count * D, r] and block_inject_weight [count, count * D], stacked over layers or not; without
    the last, as at the end of the model, s is None.

        n = grouped norm of the branches;  t = silu(n down^T / count);  x = mean over branches of sigmoid(t up^T) * n
        s = 2 sigmoid(n inject^T / count)
    """
    zero = rows.zero

    def project(x: jax.Array, name: str) -> jax.Array:  # rounded to bf16, as float32
        return to_bf16(kernels.linear(x, w[name], w[name].place(layer), rows.used)).astype(jnp.float32)

    normed = group_rms_norm_1p(branches, values_of(w["hc_norm"], layer), count, eps, zero)
    taps(f"{site}.norm", normed)
    low = to_bf16(silu(to_bf16(project(normed, "input_mix_weight_down") * (1 / count)), zero))
    gate = to_bf16(sigmoid_f32(project(low, "input_mix_weight_up"), zero)).astype(jnp.float32)
    gated = to_bf16(gate * normed.astype(jnp.float32)).astype(jnp.float32).reshape(branches.shape[0], count, -1)
    total = gated[:, 0]
    for i in range(1, count):
        total = total + rounded(gated[:, i], zero)
    x = taps(f"{site}.mix", to_bf16(total * (1 / count)))
    if "block_inject_weight" not in w:
        return x, None
    opened = to_bf16(sigmoid_f32(to_bf16(project(normed, "block_inject_weight") * (1 / count)), zero))
    return x, taps(f"{site}.inject", to_bf16(2 * opened.astype(jnp.float32)))


def feed_branches(branches: jax.Array, s: jax.Array, y: jax.Array) -> jax.Array:
    """branch_i + s_i * y, bf16 [R, count * D], from the raw (not the normed) branches, s [R, count] and y [R, D]."""
    parts = branches.reshape(*s.shape, -1)
    fed = to_bf16(s.astype(jnp.float32)[:, :, None] * y.astype(jnp.float32)[:, None])
    return add_bf16(parts, fed).reshape(branches.shape)
