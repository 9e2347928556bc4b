"""Rotary position embedding in the half-split layout of Hugging Face checkpoints.

Pair i of a head is (x[i], x[i + Dh/2]); it is turned by the angle position * inv_freq[i]. The table of cosines and
sines is made once in float64 and rounded to float32, so it is the same on every machine.
Source of the scaled forms: `modeling_rope_utils.py` of transformers 5.24.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.kernels.rounding import rounded
from dgpp.layers.rounding import to_bf16


@dataclass(frozen=True)
class Rope:
    """The rotary settings of a config: `kind` is "default", "linear", "llama3" or "yarn"."""

    head_dim: int
    theta: float
    kind: str = "default"
    factor: float = 1.0
    original_positions: int = 0
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    attention_factor: float = 1.0  # yarn: both the cosine and the sine are multiplied by it

    @staticmethod
    def from_config(raw: Mapping[str, Any], head_dim: int, positions: int) -> Rope:
        """The settings of a raw config.json, in the old (`rope_theta`, `rope_scaling`) or new (`rope_parameters`) form.

        Raises ValueError naming the field.
        """
        new = raw.get("rope_parameters")
        scaling = dict(new or raw.get("rope_scaling") or {})
        theta = scaling.get("rope_theta", raw.get("rope_theta", 10000.0))
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        where = "config.json: " + ("rope_parameters" if new else "rope_scaling")
        if kind == "default":
            return Rope(head_dim, _number(where, "rope_theta", theta))
        if kind not in ("linear", "llama3", "yarn"):
            raise ValueError(f"{where}.rope_type {kind!r} is not supported; supported: default, linear, llama3, yarn")
        factor = _number(where, "factor", scaling.get("factor"))
        original = int(
            _number(
                where, "original_max_position_embeddings", scaling.get("original_max_position_embeddings", positions)
            )
        )
        optional = {
            key: _number(where, key, scaling[key])
            for key in ("low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor")
            if scaling.get(key) is not None
        }
        if kind == "yarn":
            optional.setdefault("attention_factor", 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0)
        return Rope(head_dim, _number(where, "rope_theta", theta), kind, factor, original, **optional)

    def inv_freq(self) -> np.ndarray:
        """Angle per position of each pair: float64 [Dh/2]."""
        dims = np.arange(0, self.head_dim, 2, dtype=np.float64)
        plain = self.theta ** (-dims / self.head_dim)
        if self.kind == "default":
            return plain
        if self.kind == "linear":
            return plain / self.factor
        if self.kind == "llama3":
            wavelength = 2 * np.pi / plain
            ramp = (self.original_positions / wavelength - self.low_freq_factor) / (
                self.high_freq_factor - self.low_freq_factor
            )
            ramp = np.clip(ramp, 0.0, 1.0)
            return (1 - ramp) * plain / self.factor + ramp * plain

        def pair_of(turns: float) -> float:  # the pair that makes `turns` full turns within the original context
            return (
                self.head_dim * math.log(self.original_positions / (turns * 2 * math.pi)) / (2 * math.log(self.theta))
            )

        low = max(math.floor(pair_of(self.beta_fast)), 0)
        high = min(math.ceil(pair_of(self.beta_slow)), self.head_dim - 1)
        ramp = np.clip((np.arange(self.head_dim // 2) - low) / max(high - low, 0.001), 0.0, 1.0)
        return plain / self.factor * ramp + plain * (1 - ramp)

    def table(self, positions: int) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines, float32 [positions, Dh/2] each."""
        angle = np.arange(positions, dtype=np.float64)[:, None] * self.inv_freq()[None]
        return (
            (np.cos(angle) * self.attention_factor).astype(np.float32),
            (np.sin(angle) * self.attention_factor).astype(np.float32),
        )


def apply_rope(x: jax.Array, cos: jax.Array, sin: jax.Array, zero: jax.Array) -> jax.Array:
    """`x` [R, H, Dh] turned by the rows' angles, bf16: float32 products and sums, one rounding.

    `cos` and `sin` are float32 [R, Dh/2]; `zero` keeps the compiler from fusing a product into the sum.
    """
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    turned = (
        rounded(first * cos, zero) - rounded(second * sin, zero),
        rounded(second * cos, zero) + rounded(first * sin, zero),
    )
    return to_bf16(jnp.concatenate(turned, axis=-1))


def _number(where: str, key: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{where}.{key} must be a positive number, got {value!r}")
    return float(value)
