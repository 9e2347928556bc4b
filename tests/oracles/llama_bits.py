"""The Llama forward in NumPy, rounding by rounding: the bits that every kernel and world must give, for any format.

One sequence from position 0, world 1. Weights are a loaded tree; products follow `dgpp.formats.reference`, attention
`tests.kernels.orders`; the other steps are those of `dgpp.models.llama` and `dgpp.layers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from dgpp.checkpoint.spec import Leaves, even_ranges
from dgpp.formats import Weight, format_named, reference
from dgpp.kernels.rounding import exp_f32_numpy
from dgpp.models.llama import LlamaConfig, layer_specs
from dgpp.models.runs import weights_of_layer
from tests.kernels.orders import attention

BF16 = ml_dtypes.bfloat16
F32 = np.float32


def logits(c: LlamaConfig, weights: Mapping[str, Any], ids: Sequence[int], page: int) -> np.ndarray:
    """float32 [T, V] after every token of `ids`; `page` is the number of tokens of a cache page."""
    count = len(ids)
    h = weights["embed"].arrays["values"][list(ids)].astype(F32).astype(BF16)
    cos, sin = c.rope.table(count)
    pages = -(-count // page)
    planes = np.zeros((2, 1, pages, page, c.num_key_value_heads, c.head_dim), BF16)
    for layer in range(c.layers):
        w = weights_of_layer(weights["layers"], layer)
        x = norm(h, values(w["attn_norm"], layer), c.rms_norm_eps)
        q, k, v = (linear(x, w[name], layer).astype(BF16) for name in ("q_proj", "k_proj", "v_proj"))
        q, k, v = (y.reshape(count, -1, c.head_dim) for y in (q, k, v))
        mix, _, _ = attention(
            turned(q, cos, sin),
            turned(k, cos, sin),
            v,
            planes[0],
            planes[1],
            0,
            np.arange(pages)[None],
            np.arange(count),
            np.zeros(count, int),
            [c.kv_head_of(head) for head in range(c.num_attention_heads)],
            count,
            c.head_dim**-0.5,
        )
        mix = mix.reshape(count, -1).astype(BF16)
        h = (h.astype(F32) + folded(mix, w["o_proj"], layer, ranges(c, "o_proj")).astype(F32)).astype(BF16)
        x = norm(h, values(w["mlp_norm"], layer), c.rms_norm_eps)
        gate, up = linear(x, w["gate_proj"], layer), linear(x, w["up_proj"], layer)
        act = (gate / (F32(1) + exp_f32_numpy(-gate)) * up).astype(BF16)
        h = (h.astype(F32) + folded(act, w["down_proj"], layer, ranges(c, "down_proj")).astype(F32)).astype(BF16)
    x = norm(h, weights["final_norm"].arrays["values"], c.rms_norm_eps)
    return linear(x, weights.get("head", weights["embed"]), 0)


def values(w: Weight, layer: int) -> np.ndarray:
    """One layer of a stacked vector."""
    return w.arrays["values"][w.place(layer)]


def ranges(c: LlamaConfig, name: str) -> Sequence[tuple[int, int]]:
    """The four leaves of a product over columns."""
    leaves = layer_specs(c)[name].leaves
    assert isinstance(leaves, Leaves)
    assert name != "down_proj" or leaves.ranges == even_ranges(c.intermediate_size)
    return leaves.ranges


def linear(x: np.ndarray, w: Weight, layer: int) -> np.ndarray:
    """float32 [T, N]."""
    return reference.linear(x, one(w, layer), w.shape, format_named(w.format))


def folded(x: np.ndarray, w: Weight, layer: int, leaves: Sequence[tuple[int, int]]) -> np.ndarray:
    """bfloat16 [T, N]: four leaves, rounded, added as a tree and rounded."""
    q = reference.linear_leaves(x, one(w, layer), w.shape, format_named(w.format), leaves).astype(BF16).astype(F32)
    return ((q[0] + q[1]) + (q[2] + q[3])).astype(BF16)


def one(w: Weight, layer: int) -> dict[str, np.ndarray]:
    """The arrays of one layer of a stack, or of a weight that has no layers."""
    payload, packed = next(iter(format_named(w.format).arrays(w.shape).items()))
    if w.arrays[payload].ndim == len(packed.shape):
        return dict(w.arrays)
    return {name: array[w.place(layer)] for name, array in w.arrays.items()}


def norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """RMSNorm, bfloat16 [T, D]; the sum over D as a halving tree over a power of two."""
    h = x.astype(F32)
    width = 1 << (h.shape[1] - 1).bit_length()
    squares = np.pad(h * h, ((0, 0), (0, width - h.shape[1])))
    while width > 1:
        width //= 2
        squares = squares[:, :width] + squares[:, width:]
    inverse = F32(1) / np.sqrt(squares * F32(1.0 / h.shape[1]) + F32(eps))
    return (h * inverse * weight.astype(F32)).astype(BF16)


def turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Rotary positions on bfloat16 x [T, H, Dh]."""
    a, b = np.split(x.astype(F32), 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1).astype(BF16)
