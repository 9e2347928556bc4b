"""Goldens of the kernels, by op: inputs from seeds, shapes with ragged ends, the digest of the whole output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.checkpoint.fixture import gaussian
from dgpp.formats import Weight
from dgpp.formats.bf16 import BFLOAT16
from dgpp.kernels import default, select
from dgpp.lab.goldens.case import Computed, Judgement, digest, shown

FLOAT32 = 2.0**-24
"""The largest relative error of one rounding to float32."""


@dataclass(frozen=True)
class LinearCase:
    """x [R, K] times a layer of w [L, N, K], whole and over the ranges, of which no end is a multiple of 16."""

    name: str = "linear"
    folder: str = "kernels"
    rows: int = 5
    used: int = 4
    shape: tuple[int, int, int] = (2, 70, 200)
    ranges: tuple[tuple[int, int], ...] = ((0, 50), (50, 100), (100, 150), (150, 200))

    @property
    def inputs(self) -> dict[str, Any]:
        """Shapes and seeds."""
        ranges = " ".join(f"{start}:{stop}" for start, stop in self.ranges)
        return {
            "x": f"[{self.rows}, {self.shape[2]}], {self.used} used",
            "w": str(list(self.shape)),
            "ranges": ranges,
            "seed": 0,
        }

    def compute(self, kernels: str | None) -> Computed:
        """Exact products in a fixed order: portable."""
        ops = select(kernels) if kernels else default()
        x = _values("linear.x", (self.rows, self.shape[2]))
        w = _values("linear.w", self.shape)
        weight = Weight({"values": jnp.asarray(w)}, "bf16", self.shape[1:])
        layer, used = jnp.int32(1), jnp.int32(self.used)
        whole = np.asarray(jax.jit(ops.linear)(x, weight, layer, used))
        leaves = np.asarray(jax.jit(lambda *a: ops.linear_leaves(*a, self.ranges))(x, weight, layer, used))
        exact = x[: self.used].astype(np.float64) @ w[1].astype(np.float64).T
        bound = self.shape[2] * FLOAT32
        values = {"whole": digest(whole), "leaves": digest(leaves), "first values": shown(whole[0, :4])}
        return Computed(lambda: _judge(whole[: self.used], exact, bound), portable=values)


SLOTS, POSITIONS = (0, 1, 1, 1, 1), (40, 14, 15, 16, 17)


@dataclass(frozen=True)
class AttentionCase:
    """Rows of two slots over pages in a mixed order: one decodes, the other reads a piece across a page border."""

    name: str = "attention"
    folder: str = "kernels"
    heads: int = 4
    kv_heads: int = 2
    dim: int = 32
    page: int = 16
    scale: float = 0.25

    @property
    def inputs(self) -> dict[str, Any]:
        """Shapes and seeds."""
        return {
            "heads": f"{self.heads} on {self.kv_heads}, of {self.dim}",
            "page": self.page,
            "scale": self.scale,
            "rows": " ".join(f"slot {slot} at {position}" for slot, position in zip(SLOTS, POSITIONS, strict=True)),
            "seed": 0,
        }

    def compute(self, kernels: str | None) -> Computed:
        """The softmax has an exponential: pinned."""
        ops = select(kernels) if kernels else default()
        position, slot = np.array(POSITIONS, np.int32), np.array(SLOTS, np.int32)
        table = np.array([[4, 1, 3], [0, 5, 2]], np.int32)
        q = _values("attention.q", (len(position), self.heads, self.dim))
        k, v = (_values(f"attention.{name}", (len(position), self.kv_heads, self.dim)) for name in "kv")
        caches = [_values(f"attention.cache_{n}", (2, 6, self.page, self.kv_heads, self.dim)) for n in "kv"]
        kv_index = np.arange(self.heads, dtype=np.int32) * self.kv_heads // self.heads
        layer, used, zero = np.int32(1), np.int32(len(position)), np.int32(0)
        call = jax.jit(lambda *a: ops.attention(*a[:10], used=a[10], zero=a[11], scale=self.scale))
        out, *written = (
            np.asarray(x)
            for x in call(q, k, v, *map(jnp.asarray, caches), layer, table, position, slot, kv_index, used, zero)
        )
        values = {"out": digest(out), "cache_k": digest(written[0]), "cache_v": digest(written[1])}
        values["first values"] = shown(out[0, 0, :4])
        exact = np.stack(
            [self._exact(q[r], written, table[slot[r]], position[r], kv_index) for r in range(len(position))]
        )
        # Weights of the values are rounded to bfloat16, the rest is float32.
        return Computed(lambda: _judge(out, exact, 2.0**-8), pinned=values)

    def _exact(
        self, q: np.ndarray, caches: list[np.ndarray], pages: np.ndarray, position: int, kv_index: np.ndarray
    ) -> np.ndarray:
        keys, values = (
            cache[1, pages].reshape(-1, self.kv_heads, self.dim)[: position + 1, kv_index].astype(np.float64)
            for cache in caches
        )
        scores = np.einsum("hd,thd->ht", q.astype(np.float64), keys) * self.scale
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        exact: np.ndarray = np.einsum("ht,thd->hd", weights / weights.sum(axis=1, keepdims=True), values)
        return exact


def _values(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """bfloat16 values that depend on the name and the shape alone."""
    return gaussian(shape, 0, name).astype(np.float32).astype(BFLOAT16)


def _judge(found: np.ndarray, exact: np.ndarray, bound: float) -> Judgement:
    return Judgement(float(np.linalg.norm(found - exact) / np.linalg.norm(exact)), bound)


OP_CASES = (LinearCase(), AttentionCase())
