"""The Llama equations in float64 NumPy, straight from the checkpoint's tensors: what every implementation is judged by.

No rounding but that of float64, no cache, no batch, nothing shared with the engine. Source of the equations:
"LLaMA: Open and Efficient Foundation Language Models" (RMSNorm, SwiGLU, rotary positions), "GQA: Training Generalized
Multi-Query Transformer Models" (shared key/value heads), and `modeling_rope_utils.py` of transformers 5.24 (llama3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Read = Callable[[str], np.ndarray]


def logits(raw: Mapping[str, Any], read: Read, ids: Sequence[int]) -> np.ndarray:
    """Logits after every token of `ids`, float64 [T, V]. `raw` is config.json, `read(name)` a tensor by its name."""

    def w(name: str) -> np.ndarray:
        return read(name + ".weight").astype(np.float64)

    eps, heads, kv_heads = raw["rms_norm_eps"], raw["num_attention_heads"], raw["num_key_value_heads"]
    turn = rotation(raw, len(ids))
    x = w("model.embed_tokens")[list(ids)]
    for layer in range(raw["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        y = norm(x, w(at + "input_layernorm"), eps)
        q, k, v = (
            (y @ w(f"{at}self_attn.{name}_proj").T).reshape(len(ids), count, -1)
            for name, count in (("q", heads), ("k", kv_heads), ("v", kv_heads))
        )
        mix = attention(turn(q), turn(k), v).reshape(len(ids), -1)
        x = x + mix @ w(at + "self_attn.o_proj").T
        y = norm(x, w(at + "post_attention_layernorm"), eps)
        gate, up = y @ w(at + "mlp.gate_proj").T, y @ w(at + "mlp.up_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w(at + "mlp.down_proj").T
    head = "model.embed_tokens" if raw.get("tie_word_embeddings") else "lm_head"
    return norm(x, w("model.norm"), eps) @ w(head).T


def norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """RMSNorm over the last axis."""
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal softmax attention: q [T, H, Dh], k and v [T, K, Dh] with H / K query heads to a K/V head -> [T, H, Dh]."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(q.shape[-1])
    scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.einsum("hts,shd->thd", weights / weights.sum(axis=-1, keepdims=True), v)


def rotation(raw: Mapping[str, Any], length: int) -> Callable[[np.ndarray], np.ndarray]:
    """x [T, H, Dh] -> x with pair (i, i + Dh/2) of every head turned by position * frequency_i."""
    dim = raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]
    frequency = raw["rope_theta"] ** (-np.arange(0, dim, 2) / dim)
    scaling = raw.get("rope_scaling") or {}
    if scaling:
        assert scaling["rope_type"] == "llama3", "the oracle knows unscaled and llama3 positions"
        low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
        turns = scaling["original_max_position_embeddings"] * frequency / (2 * np.pi)
        kept = np.clip((turns - low) / (high - low), 0, 1)  # 1: as it was, 0: slowed by the whole factor
        frequency = frequency * (kept + (1 - kept) / factor)
    angle = np.arange(length)[:, None, None] * frequency
    cos, sin = np.cos(angle), np.sin(angle)

    def turn(x: np.ndarray) -> np.ndarray:
        a, b = np.split(x, 2, axis=-1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    return turn
