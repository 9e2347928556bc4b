"""The judge: the Llama forward in float64, from the equations, on a snapshot's own weights.

Source of the equations: `modeling_llama.py` of transformers 5.24 (RMSNorm, half-split rope, grouped-query attention,
SwiGLU, tied head). Nothing is rounded below float64, so its error is far below that of any engine under test.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dgpp.checkpoint.reader import Checkpoint


def float64_logits(directory: Path, ids: Sequence[int]) -> np.ndarray:
    """The logits after each of `ids` (one prompt from position 0): float64 [T, V]."""
    checkpoint = Checkpoint.open(directory)
    config = checkpoint.config
    heads, kv_heads, eps = config["num_attention_heads"], config["num_key_value_heads"], config["rms_norm_eps"]
    positions = len(ids)

    def tensor(name: str) -> np.ndarray:
        return checkpoint.read(f"model.{name}.weight").astype(np.float64)

    embed = tensor("embed_tokens")
    dims = np.arange(0, config["head_dim"], 2) / config["head_dim"]
    angle = np.arange(positions)[:, None] * config["rope_theta"] ** -dims  # [T, Dh/2]
    future = np.triu(np.full((positions, positions), -np.inf), 1)

    x = embed[list(ids)]  # [T, D]
    for layer in range(config["num_hidden_layers"]):
        at = f"layers.{layer}."
        h = _rms_norm(x, tensor(at + "input_layernorm"), eps)
        q = _rope(_split(h @ tensor(at + "self_attn.q_proj").T, heads), angle)  # [H, T, Dh]
        k = _rope(_split(h @ tensor(at + "self_attn.k_proj").T, kv_heads), angle)
        v = _split(h @ tensor(at + "self_attn.v_proj").T, kv_heads)
        k, v = (np.repeat(part, heads // kv_heads, axis=0) for part in (k, v))
        scores = q @ k.swapaxes(1, 2) / np.sqrt(config["head_dim"]) + future
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (p / p.sum(axis=-1, keepdims=True)) @ v
        x = x + mixed.swapaxes(0, 1).reshape(positions, -1) @ tensor(at + "self_attn.o_proj").T
        h = _rms_norm(x, tensor(at + "post_attention_layernorm"), eps)
        gate, up = h @ tensor(at + "mlp.gate_proj").T, h @ tensor(at + "mlp.up_proj").T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ tensor(at + "mlp.down_proj").T
    return _rms_norm(x, tensor("norm"), eps) @ embed.T


def _rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def _split(x: np.ndarray, heads: int) -> np.ndarray:
    """[T, H*Dh] -> [H, T, Dh]."""
    return x.reshape(len(x), heads, -1).swapaxes(0, 1)


def _rope(x: np.ndarray, angle: np.ndarray) -> np.ndarray:
    first, second = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angle), np.sin(angle)
    return np.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)
