"""A Llama forward for measuring quality: the operands and roundings of the serving forward, its sums in any order.

Every linear is the product that its format defines (`dgpp.formats.base.Format`): the activations as `prepare` makes
them from bfloat16, the operand and its scales, and the epilogue; the weights are multiplied out to float32 once, and
XLA adds in whatever order is fast. Activations are rounded to bfloat16 where the serving forward rounds them, but for
the outputs of attention and MLP, which are rounded once and not in four parts. So logits differ from the served ones by
a rounding of bfloat16 here and there, the same for every format. This is no way to run a model: the multiplied-out
weights take four bytes each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.formats import Format, Shape, format_named
from dgpp.formats.bf16 import BFLOAT16
from dgpp.kernels.gated.reference import swiglu
from dgpp.kernels.norm.reference import rms_norm
from dgpp.kernels.rope.reference import apply_rope
from dgpp.kernels.stored import add_bf16, to_bf16
from dgpp.models.llama import LlamaConfig

LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

ROWS = 1024  # rows of a matrix multiplied out at a time

Weights = Mapping[str, Any]
"""Of one layer: {"attn_norm": bf16 [D], "mlp_norm": bf16 [D], and each of LINEARS: `operand` of its packed arrays}."""


def operand(arrays: Mapping[str, np.ndarray], shape: Shape, format: Format) -> dict[str, Any]:
    """What `product` needs of a packed matrix [N, K]: operand times group scales, float32 [N, K], and the other arrays.

    float32 rounds a code times its scale by 2^-24 of it.
    """
    parts = []
    for start in range(0, shape[0], ROWS):
        block = format.rows(arrays, shape, start, min(ROWS, shape[0] - start))
        values = np.asarray(format.operand(block, shape), np.float32)
        if format.group is not None:
            values = values * np.repeat(np.asarray(format.scales(block, shape)), format.group, 1)[:, : shape[1]]
        parts.append(values)
    n, k = shape
    kept = {name: array for name, array in arrays.items() if array.size < n * k // 16}  # scales, not codes
    return {"values": np.concatenate(parts), "arrays": kept}


def product(x: jax.Array, weight: Mapping[str, Any], format: Format, features: int) -> jax.Array:
    """float32 [R, `features`] from bf16 [R, K]. The stored matrix may be larger: zeros are added to x, outputs cut."""
    shape = weight["values"].shape
    a = format.prepare(jnp.pad(x, ((0, 0), (0, shape[1] - x.shape[1]))), weight["arrays"], shape)
    values = a.values.astype(jnp.float32)
    if a.scales is not None and format.group is not None:
        values = values * jnp.repeat(a.scales, format.group, axis=1)[:, : shape[1]]
    y = jnp.dot(values, weight["values"].T, precision=jax.lax.Precision.HIGHEST)
    return format.epilogue(y, weight["arrays"], shape)[:, :features]


@functools.partial(jax.jit, static_argnums=(0, 1))
def _layer(
    c: LlamaConfig, tags: tuple[str, ...], w: Weights, h: jax.Array, cos: jax.Array, sin: jax.Array, zero: jax.Array
) -> jax.Array:
    """The layer's output bf16 [T, D] from its input: one text from position 0. `tags` are the formats of LINEARS."""
    formats = dict(zip(LINEARS, map(format_named, tags), strict=True))
    heads, kv_heads, dh = c.num_attention_heads, c.num_key_value_heads, c.head_dim
    x = rms_norm(h, w["attn_norm"], c.rms_norm_eps, zero)

    def split(name: str, count: int) -> jax.Array:
        return to_bf16(product(x, w[name], formats[name], count * dh)).reshape(-1, count, dh)

    q = apply_rope(split("q_proj", heads), cos, sin, zero).astype(jnp.float32)
    k = apply_rope(split("k_proj", kv_heads), cos, sin, zero).astype(jnp.float32)
    v = split("v_proj", kv_heads).astype(jnp.float32)
    q = q.reshape(-1, kv_heads, heads // kv_heads, dh)
    scores = jnp.einsum("tkgd,skd->kgts", q, k, precision=jax.lax.Precision.HIGHEST) * dh**-0.5
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[2:], bool)), scores, -jnp.inf)
    p = jnp.exp(scores - scores.max(-1, keepdims=True))
    mixed = jnp.einsum("kgts,skd->tkgd", to_bf16(p).astype(jnp.float32), v, precision=jax.lax.Precision.HIGHEST)
    mixed = mixed / p.sum(-1).transpose(2, 0, 1)[..., None]
    mixed = to_bf16(mixed.reshape(h.shape[0], -1))
    h = add_bf16(h, to_bf16(product(mixed, w["o_proj"], formats["o_proj"], c.hidden_size)))
    x = rms_norm(h, w["mlp_norm"], c.rms_norm_eps, zero)
    gate = product(x, w["gate_proj"], formats["gate_proj"], c.intermediate_size)
    up = product(x, w["up_proj"], formats["up_proj"], c.intermediate_size)
    act = swiglu(gate, up, zero)
    return add_bf16(h, to_bf16(product(act, w["down_proj"], formats["down_proj"], c.hidden_size)))


def hidden_states(
    c: LlamaConfig,
    tags: Sequence[str],
    layer: Callable[[int], Weights],
    embed: np.ndarray,
    final_norm: np.ndarray,
    texts: Sequence[Sequence[int]],
) -> np.ndarray:
    """The final hidden states bf16 [texts, T, D] of `texts` of equal length, each read from position 0.

    `layer(i)` gives the weights of layer i, asked for once each; `tags` name the formats of LINEARS.
    """
    zero = jnp.int32(0)
    cos, sin = map(jnp.asarray, c.rope.table(len(texts[0])))
    states = [jnp.asarray(embed[list(text)]) for text in texts]
    for number in range(c.layers):
        weights = jax.device_put(layer(number))
        states = [_layer(c, tuple(tags), weights, h, cos, sin, zero) for h in states]
        jax.block_until_ready(states)
    normed = [np.asarray(rms_norm(h, jnp.asarray(final_norm), c.rms_norm_eps, zero)) for h in states]
    return np.stack(normed).astype(BFLOAT16)


@jax.jit
def _compared(
    embed: jax.Array, hidden: jax.Array, other: jax.Array, target: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    head = embed.astype(jnp.float32).T
    both = [jnp.dot(h.astype(jnp.float32), head, precision=jax.lax.Precision.HIGHEST) for h in (hidden, other)]
    p, q = (jax.nn.log_softmax(logits) for logits in both)
    surprise = -jnp.take_along_axis(q, target[:, None], 1)[:, 0]
    return surprise, (jnp.exp(p) * (p - q)).sum(-1), both[0].argmax(-1) == both[1].argmax(-1)


def compared(
    embed: np.ndarray, hidden: np.ndarray, other: np.ndarray, target: np.ndarray, rows: int = 512
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per position, [T] each: the surprise in nats of `target` under `other`, the divergence KL(hidden || other) of the
    two next-token distributions in nats, and whether both have the same likeliest token.

    `hidden` and `other` are final hidden states bf16 [T, D] under one tied head `embed` bf16 [V, D].
    """
    held = jax.device_put(embed)
    parts = [
        _compared(held, hidden[start : start + rows], other[start : start + rows], target[start : start + rows])
        for start in range(0, len(target), rows)
    ]
    surprise, divergence, same = (np.concatenate(column) for column in zip(*parts, strict=True))
    return surprise.astype(np.float64), divergence.astype(np.float64), same
