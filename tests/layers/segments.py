"""Batches for layers in isolation: rows from segments, weights from arrays, and state for some slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from dgpp.formats import Weight
from dgpp.kernels.rows import Phase, Rows

BF16 = np.dtype(ml_dtypes.bfloat16)
PAGE, SLOTS = 16, 3


@dataclass(frozen=True)
class Segment:
    """`count` rows of a slot from position `start`; `replay` rows before them were accepted and not committed."""

    slot: int
    start: int
    count: int
    phase: Phase = Phase.PREFILL
    replay: int = 0


def rows_of(*segments: Segment, padding: int = 0, pages: int = 8, shift: int = 0) -> Rows:
    """The batch of `segments`, then padding rows. Rope positions are the positions plus `shift`."""
    columns: dict[str, list[int]] = {name: [] for name in ("position", "slot", "phase", "first", "last")}
    replay = np.zeros(SLOTS, np.int32)
    for s in segments:
        begin = len(columns["slot"])
        columns["position"] += range(s.start, s.start + s.count)
        columns["slot"] += [s.slot] * s.count
        columns["phase"] += [int(s.phase)] * s.count
        columns["first"] += [begin] * s.count
        columns["last"] += [begin + s.count - 1] * s.count
        replay[s.slot] = s.replay
    used = len(columns["slot"])
    for i in range(used, used + padding):
        for name, value in (("position", -1), ("slot", -1), ("phase", 0), ("first", i), ("last", i)):
            columns[name].append(value)
    arrays = {name: jnp.asarray(values, jnp.int32) for name, values in columns.items()}
    table = np.random.default_rng(5).permutation(SLOTS * pages).reshape(SLOTS, pages)
    return Rows(
        token=jnp.zeros(used + padding, jnp.int32),
        rope=jnp.repeat(arrays["position"][:, None] + shift, 3, axis=1),
        used=jnp.int32(used),
        page_table=jnp.asarray(table, jnp.int32),
        replay=jnp.asarray(replay),
        zero=jnp.int32(0),
        **arrays,
    )


def weight(values: np.ndarray, layers: int = 1) -> Weight:
    """A bf16 weight of `values` [...], as the last of `layers` stacked ones."""
    values = np.asarray(values, np.float32).astype(BF16)
    stack = np.zeros((layers, *values.shape), BF16)
    stack[-1] = values
    return Weight({"values": jnp.asarray(stack)}, "bf16", values.shape)


def gaussian(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    """bf16 normal values."""
    return (rng.standard_normal(shape) * scale).astype(np.float32).astype(BF16)


def f64(x: Any) -> np.ndarray:
    """`x` as float64."""
    return np.asarray(x).astype(np.float64)


def leaves(size: int, count: int = 4) -> tuple[tuple[int, int], ...]:
    """`size` columns in equal leaves."""
    return tuple((size * i // count, size * (i + 1) // count) for i in range(count))


def layer_rows(capacity: int, x: np.ndarray, *segments: Segment) -> tuple[jnp.ndarray, Rows]:
    """`x` and the batch of its segments, filled up with padding rows to `capacity`, so that one program serves all."""
    fill = capacity - len(x)
    return jnp.asarray(np.pad(x, ((0, fill), *((0, 0) for _ in x.shape[1:])))), rows_of(*segments, padding=fill)


def same(a: Any, b: Any) -> bool:
    """Whether two arrays have the same bits."""
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()
