"""RMSNorm in its forms, with the sum over D as a halving tree so that no compiler chooses its order."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels.leaves import folded
from dgpp.kernels.linear.fed import Feed
from dgpp.kernels.linear.parts import summed
from dgpp.kernels.rounding import exp_f32, rounded, sigmoid_f32
from dgpp.kernels.rows import Rows
from dgpp.kernels.stacks import values_of
from dgpp.kernels.stored import add_bf16, to_bf16


def tree_sum(x: jax.Array) -> jax.Array:
    """Sum over the last axis: zero-padded to a power of two, then x[i] + x[i + half] until one is left."""
    width = 1 << max(0, x.shape[-1] - 1).bit_length()
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])])
    while width > 1:
        width //= 2
        x = x[..., :width] + x[..., width:]
    return x[..., 0]


def normed(
    x: jax.Array, weight: Weight, layer: jax.Array, eps: float, rows: Rows, *, centred: bool, feeds: Sequence[Feed] = ()
) -> jax.Array:
    """`rms_norm` of x bf16 [R, D], or `rms_norm_1p` where the weights are `centred` at 0: bf16 [R, D]."""
    return (rms_norm_1p if centred else rms_norm)(x, values_of(weight, layer), eps, rows.zero)


def added_normed(
    h: jax.Array,
    leaves: jax.Array,
    weight: Weight,
    layer: jax.Array,
    eps: float,
    rows: Rows,
    *,
    centred: bool,
    feeds: Sequence[Feed] = (),
) -> tuple[jax.Array, jax.Array]:
    """(s, `normed` of it) of s = bf16(h + `folded(leaves)`): h bf16 [R, D], leaves [4, R, D]."""
    s = add_bf16(h, folded(leaves))
    return s, normed(s, weight, layer, eps, rows, centred=centred)


def gated_normed(
    o: jax.Array,
    z: jax.Array,
    weight: Weight,
    layer: jax.Array,
    eps: float,
    act: str,
    rows: Rows,
    feeds: Sequence[Feed] = (),
) -> jax.Array:
    """`gated_rms_norm` of bf16(o) behind bf16(z), head by head: bf16 [R, V * dv], from o float32 [R, V, dv] and the
    parts of z, float32 [P, R, V * dv]."""
    gate = to_bf16(summed(z)).reshape(o.shape)
    y = gated_rms_norm(to_bf16(o), gate, values_of(weight, layer), eps, act, rows.zero)
    return y.reshape(y.shape[0], -1)


def rms_norm(x: jax.Array, weight: jax.Array, eps: float, zero: jax.Array) -> jax.Array:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, bf16 [..., D] from bf16 [..., D] and [D]; one rounding.

    Squares of bf16 are exact in float32. The reciprocal is a division by a rounded root, because the compiler would
    turn `1 / sqrt` into an approximate `rsqrt` whose bits depend on the processor.
    """
    h = x.astype(jnp.float32)
    return to_bf16(h * _inverse_rms(h, eps, zero) * weight.astype(jnp.float32))


def rms_norm_1p(x: jax.Array, weight: jax.Array, eps: float, zero: jax.Array) -> jax.Array:
    """x / sqrt(mean(x^2) + eps) * (1 + weight) over the last axis, bf16 [..., D]; one rounding at the end.

    The zero-centred RMSNorm of the Qwen families, whose stored weights are near 0.
    """
    h = x.astype(jnp.float32)
    return to_bf16(h * _inverse_rms(h, eps, zero) * (1.0 + weight.astype(jnp.float32)))


def group_rms_norm_1p(x: jax.Array, weight: jax.Array, groups: int, eps: float, zero: jax.Array) -> jax.Array:
    """`rms_norm_1p` of `groups` equal parts of the last axis, each by its own mean: bf16 [..., groups * D].

    `weight` [groups * D] has values of its own for every part.
    """
    parts = x.reshape(*x.shape[:-1], groups, -1)
    return rms_norm_1p(parts, weight.reshape(groups, -1), eps, zero).reshape(x.shape)


def gated_rms_norm(o: jax.Array, z: jax.Array, weight: jax.Array, eps: float, act: str, zero: jax.Array) -> jax.Array:
    """bf16(bf16(weight * bf16(o / sqrt(mean(o^2) + eps))) * act(z)) over the last axis: bf16 [..., D].

    `act` is "swish" (z * sigmoid(z)) or "sigmoid", evaluated in float32. Raises ValueError for any other.
    Source: `Qwen3_5RMSNormGated` and `Qwen4ExpTextRMSNormGated` of transformers 5.24; the norm comes before the gate.
    """
    h, gate = o.astype(jnp.float32), z.astype(jnp.float32)
    if act not in ("sigmoid", "swish"):
        raise ValueError(f"the gate of a norm is 'sigmoid' or 'swish', not {act!r}")
    opened = sigmoid_f32(gate, zero) if act == "sigmoid" else gate / (1.0 + exp_f32(-gate, zero))
    normed = to_bf16(h * _inverse_rms(h, eps, zero)).astype(jnp.float32)
    weighted = to_bf16(normed * weight.astype(jnp.float32)).astype(jnp.float32)
    return to_bf16(weighted * opened)


def l2_norm(x: jax.Array, zero: jax.Array, eps: float = 1e-6) -> jax.Array:
    """x / sqrt(sum(x^2) + eps) over the last axis, float32 and not rounded to bf16: [..., D] from [..., D].

    Source: `l2norm` of transformers 5.24, after the FLA library: epsilon is added to the sum, not to the mean.
    """
    h = x.astype(jnp.float32)
    total = tree_sum(rounded(h * h, zero))
    return rounded(h * _reciprocal_root(total + eps, zero)[..., None], zero)


def _inverse_rms(h: jax.Array, eps: float, zero: jax.Array) -> jax.Array:
    mean = rounded(tree_sum(rounded(h * h, zero)) * (1.0 / h.shape[-1]), zero)
    return _reciprocal_root(mean + eps, zero)[..., None]


def _reciprocal_root(x: jax.Array, zero: jax.Array) -> jax.Array:
    return 1.0 / rounded(jnp.sqrt(x), zero)
