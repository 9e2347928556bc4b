"""The settings and the table of rotary position embedding, in the half-split layout of Hugging Face checkpoints.

Pair i of a head is (x[i], x[i + Dr/2]); it is turned by the angle position * inv_freq[i], where Dr is the rotary part
of the head and the rest passes through. The table of cosines and sines is made once on the host, so it is the same on
every machine. Sources: `modeling_rope_utils.py` of transformers 5.24 for the scaled forms,
`Qwen3_5TextRotaryEmbedding` for interleaved positions in three axes, and vLLM's mRoPE for the YaRN ramp over four times
the context.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SCALING_KEYS = (
    "factor",
    "original_max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "attn_factor",
    "mrope_cache_factor",
)
"""The fields of the engine option `rope_scaling`."""


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
    partial: int = 0  # elements of a head that are turned; 0: all
    mrope_section: tuple[int, ...] = ()  # frequencies of the axes t, h and w, interleaved; empty: one position axis
    mrope_cache_factor: float = 1.0  # yarn: what the original context is multiplied by before the ramp is laid

    @property
    def rotary_dim(self) -> int:
        """Dr, the elements of a head that are turned."""
        return self.partial or self.head_dim

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
        plain = Rope(head_dim, _number(where, "rope_theta", theta))
        part = scaling.get("partial_rotary_factor", raw.get("partial_rotary_factor"))
        if part is not None:
            plain = replace(plain, partial=_rotary_dim(where, part, head_dim))
        if scaling.get("mrope_section"):
            plain = replace(plain, mrope_section=_mrope_section(where, scaling, plain.rotary_dim // 2))
        if kind == "default":
            return plain
        if kind not in ("linear", "llama3", "yarn"):
            raise ValueError(f"{where}.rope_type {kind!r} is not supported; supported: default, linear, llama3, yarn")
        factor = _number(where, "factor", scaling.get("factor"))
        original = int(
            _number(
                where, "original_max_position_embeddings", scaling.get("original_max_position_embeddings", positions)
            )
        )
        optional: dict[str, Any] = {
            key: _number(where, key, scaling[key])
            for key in ("low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor")
            if scaling.get(key) is not None
        }
        if kind == "yarn":
            optional.setdefault("attention_factor", 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0)
        return replace(plain, kind=kind, factor=factor, original_positions=original, **optional)

    def scaled(self, options: Mapping[str, Any]) -> Rope:
        """These settings with the engine option `rope_scaling`, a YaRN ramp that a checkpoint does not bring itself.

        Raises ValueError naming the field, also when the checkpoint already has a scaling.
        """
        where = "engine.rope_scaling"
        if self.kind != "default":
            raise ValueError(
                f"{where}: the checkpoint already scales its positions ({self.kind}); leave the option out"
            )
        for key in options:
            if key not in SCALING_KEYS:
                raise ValueError(f"{where}.{key} is not known; known are: {', '.join(SCALING_KEYS)}")
        given = {key: _number(where, key, value) for key, value in options.items()}
        for key in ("factor", "original_max_position_embeddings"):
            if key not in given:
                raise ValueError(f"{where}.{key} is missing")
        factor = given["factor"]
        if factor <= 1:
            raise ValueError(f"{where}.factor must be above 1, got {factor}")
        return replace(
            self,
            kind="yarn",
            factor=factor,
            original_positions=int(given["original_max_position_embeddings"]),
            beta_fast=given.get("beta_fast", 32.0),
            beta_slow=given.get("beta_slow", 1.0),
            attention_factor=(0.1 * math.log(factor) + 1.0) * given.get("attn_factor", 1.0),
            mrope_cache_factor=given.get("mrope_cache_factor", 4.0),
        )

    def ramp(self) -> dict[str, Any] | None:
        """The YaRN ramp as `/v1/models` names its settings (spec/api.md §11); None without one."""
        if self.kind != "yarn":
            return None
        return {
            "rope_type": "yarn",
            "factor": self.factor,
            "original_max_position_embeddings": self.original_positions,
            "beta_fast": self.beta_fast,
            "beta_slow": self.beta_slow,
            "attn_factor": self.attention_factor / (0.1 * math.log(self.factor) + 1.0),
            "mrope_cache_factor": self.mrope_cache_factor,
            "mscale": self.attention_factor,
            "correction_max_position_embeddings": int(self.original_positions * self.mrope_cache_factor),
            "scaled_max_position_embeddings": int(self.original_positions * self.factor),
        }

    def inv_freq(self) -> np.ndarray:
        """Angle per position of each pair: float64 [Dr/2]; float32 for a rope in three axes."""
        dim = self.rotary_dim
        dims = np.arange(0, dim, 2, dtype=np.float64)
        plain: np.ndarray = self.theta ** (-dims / dim)
        if self.mrope_section:  # as published: theta^e in float32, and its reciprocal
            power = (np.float64(self.theta) ** (dims / dim).astype(np.float32)).astype(np.float32)
            plain = np.float32(1) / power
        if self.kind == "default":
            return plain
        if self.kind == "linear":
            return plain / self._like(plain, self.factor)
        if self.kind == "llama3":
            wavelength = 2 * np.pi / plain
            ramp = (self.original_positions / wavelength - self.low_freq_factor) / (
                self.high_freq_factor - self.low_freq_factor
            )
            ramp = np.clip(ramp, 0.0, 1.0)
            return ((1 - ramp) * plain / self.factor + ramp * plain).astype(plain.dtype)
        low, high = self.yarn_band()
        ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0.0, 1.0).astype(plain.dtype)
        return plain / self._like(plain, self.factor) * ramp + plain * (1 - ramp)

    def yarn_band(self) -> tuple[int, int]:
        """The pairs between which YaRN goes over from unscaled to scaled angles."""
        dim, context = self.rotary_dim, self.original_positions * self.mrope_cache_factor

        def pair_of(turns: float) -> float:  # the pair that makes `turns` full turns within the original context
            return dim * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(self.theta))

        return max(math.floor(pair_of(self.beta_fast)), 0), min(math.ceil(pair_of(self.beta_slow)), dim - 1)

    def table(self, positions: int) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines, float32 [positions, Dr/2] each.

        A rope in three axes has its angles rounded to float32, as published; else they are float64.
        """
        inv_freq = self.inv_freq()
        angle = (np.arange(positions, dtype=inv_freq.dtype)[:, None] * inv_freq[None]).astype(np.float64)
        return (
            (np.cos(angle) * self.attention_factor).astype(np.float32),
            (np.sin(angle) * self.attention_factor).astype(np.float32),
        )

    def axis_of_frequency(self) -> np.ndarray:
        """int32 [Dr/2]: the position axis (0 t, 1 h, 2 w) of each frequency, interleaved t h w t h w ... t t."""
        axis = np.zeros(self.rotary_dim // 2, np.int32)
        for i, size in enumerate(self.mrope_section[1:], 1):
            axis[i : 3 * size : 3] = i
        return axis

    def angles(self, cos: jax.Array, sin: jax.Array, rope: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The rows' cosines and sines, float32 [R, Dr/2], from the table's and positions int32 [R, 3]."""
        axis = self.axis_of_frequency()
        position = jnp.maximum(rope, 0)[:, axis]
        frequency = np.arange(len(axis))
        return cos[position, frequency], sin[position, frequency]

    @staticmethod
    def _like(plain: np.ndarray, value: float) -> Any:
        return plain.dtype.type(value)


def _rotary_dim(where: str, part: Any, head_dim: int) -> int:
    dim = head_dim * _number(where, "partial_rotary_factor", part)
    if dim > head_dim or dim != int(dim) or int(dim) % 2:
        raise ValueError(f"{where}.partial_rotary_factor {part!r} is no even part of head_dim {head_dim}")
    return int(dim)


def _mrope_section(where: str, scaling: Mapping[str, Any], frequencies: int) -> tuple[int, ...]:
    section = scaling["mrope_section"]
    if scaling.get("mrope_interleaved") is not True:
        raise ValueError(f"{where}.mrope_interleaved must be true beside mrope_section")
    fitting = isinstance(section, list | tuple) and len(section) == 3 and all(isinstance(n, int) for n in section)
    if not fitting or sum(section) != frequencies or min(section) < 1:
        raise ValueError(f"{where}.mrope_section {section!r} must be three counts that add up to {frequencies}")
    return tuple(section)


def _number(where: str, key: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value <= 0:
        raise ValueError(f"{where}.{key} must be a positive number, got {value!r}")
    return float(value)
