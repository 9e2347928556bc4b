"""The experts' ops at the shapes of the published mixtures, for `bench.kernels --experts`.

Rows are routed at random; `bytes` are those that the routing makes a call move at least: every expert that was chosen
once, the inputs and the outputs. `seconds` are all launches of an op, `product_seconds` those of its products alone.
"""

from __future__ import annotations

import collections
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.device import events
from bench.linear import THREADS, rates
from bench.random_weights import random_experts
from dgpp.formats import Weight
from dgpp.kernels import select

ROWS = (1, 4, 16, 64, 2048)
CALLS = 6  # in a pass, each of a layer and a routing of its own
LAYERS_BYTES = 4 << 30  # of weights that are held at most, unless one layer is larger
Row = dict[str, Any]


@dataclass(frozen=True)
class Mixture:
    """`held` experts of D x `inner`, of which a row takes `chosen`, and the formats that they are published in."""

    name: str
    d: int
    inner: int
    held: int
    chosen: int
    formats: tuple[str, ...]


MIXTURES = (
    Mixture("Qwen3.5-122B-A10B", 3072, 1024, 256, 8, ("nvfp4", "fp8_block128_bf16")),
    Mixture("Qwen3.8-Flash-Next", 2560, 640, 512, 10, ("fp8_block128_bf16", "nvfp4")),
    Mixture("GLM-5.3-Flash", 4096, 2048, 288, 8, ("fp8_block128_bf16", "nvfp4_divisor")),
    Mixture("DeepSeek-V4-Flash", 4096, 2048, 256, 6, ("mxfp4_deepseek",)),
)
"""Sizes: spec/models_qwen.md, spec/models_glm.md and spec/models_deepseek_mimo_flint.md."""


def choice(rows: int, held: int, chosen: int, seed: int) -> jax.Array:
    """int32 [R, E']: different experts for every row, ascending."""
    order = np.random.default_rng(seed).random((rows, held)).argsort(axis=1)[:, :chosen]
    return jnp.asarray(np.sort(order, axis=1), jnp.int32)


def seconds_of(run: Callable[[], Any], calls: int) -> dict[str, float]:
    """Seconds on the device by kernel name, of one call of an op: all of its launches together."""
    found: collections.Counter[str] = collections.Counter()
    for event in events(run):
        found[event.name] += event.seconds / calls  # type: ignore[assignment]
    return dict(found)


def expert_bytes(w: Weight) -> int:
    """Bytes of one expert's matrix."""
    return sum(math.prod(array.shape[2:]) * array.dtype.itemsize for array in w.arrays.values())


def weights_of(m: Mixture, format: str) -> tuple[tuple[Weight, Weight], Weight]:
    """((gate, up), down) of as many layers as LAYERS_BYTES hold."""
    shapes = ((2 * m.inner, m.d), (m.d, m.inner))
    once = sum(expert_bytes(jax.eval_shape(partial(random_experts, format, 1, 1, *shape))) for shape in shapes)
    layers = max(1, min(4, LAYERS_BYTES // (once * m.held)))
    gate, up = (random_experts(format, layers, m.held, m.inner, m.d, seed) for seed in (0, 1))
    return (gate, up), random_experts(format, layers, m.held, m.d, m.inner, 2)


def batch(m: Mixture, rows: int, w: Weight) -> tuple[Any, jax.Array, jax.Array]:
    """(one of the layers of `w` and a routing for each call, rows, activations)."""
    layers = next(iter(w.arrays.values())).shape[0]
    routed = [(jnp.int32(i % layers), choice(rows, m.held, m.chosen, i)) for i in range(CALLS if rows <= 64 else 2)]
    x = jax.random.normal(jax.random.key(1), (rows, m.d), jnp.float32).astype(jnp.bfloat16)
    act = jax.random.normal(jax.random.key(2), (rows, m.chosen, m.inner), jnp.float32).astype(jnp.bfloat16)
    return routed, x, act


def built(m: Mixture, format: str, rows: int) -> tuple[Any, Any]:
    """The compiled calls of the gated op and of the down op at one number of rows."""
    kernels, zero = select("triton"), jnp.int32(0)
    leaves = tuple((i * m.inner // 4, (i + 1) * m.inner // 4) for i in range(4))

    def gated(x: jax.Array, routed: Any, w: Any, used: jax.Array) -> list[jax.Array]:
        return [kernels.grouped_gated(x, experts, w, [at] * len(w), used, zero) for at, experts in routed]

    def down(act: jax.Array, routed: Any, w: Any, used: jax.Array) -> list[jax.Array]:
        weights = jnp.ones((rows, m.chosen), jnp.bfloat16)
        return [kernels.grouped_down(act, experts, weights, w, at, used, leaves, zero) for at, experts in routed]

    opened, closed = jax.eval_shape(partial(weights_of, m, format))
    routed, x, act = jax.eval_shape(partial(batch, m, rows, closed))
    used = jax.ShapeDtypeStruct((), jnp.int32)
    return (
        jax.jit(gated).lower(x, routed, opened, used).compile(),
        jax.jit(down).lower(act, routed, closed, used).compile(),
    )


def rows_at(
    m: Mixture,
    opened: tuple[Weight, Weight],
    closed: Weight,
    rows: int,
    calls: tuple[Any, Any],
    read_gbps: float,
    clock: float,
) -> list[Row]:
    """Rows of the record: the two ops at one number of rows, as they were `built`."""
    routed, x, act = batch(m, rows, closed)
    (gated, down), used = calls, jnp.int32(rows)
    distinct = float(np.mean([len(np.unique(np.asarray(experts))) for _, experts in routed]))
    moved = distinct * sum(expert_bytes(one) for one in opened) + 2 * rows * (m.d + m.inner * m.chosen)
    one = row_of(
        ("grouped_gated", m, opened[0].format, rows, distinct, int(moved)),
        seconds_of(lambda: gated(x, routed, opened, used), len(routed)),
        read_gbps,
        clock,
    )
    moved = distinct * expert_bytes(closed) + rows * (2 * m.inner * m.chosen + 16 * m.d)
    two = row_of(
        ("grouped_down", m, closed.format, rows, distinct, int(moved)),
        seconds_of(lambda: down(act, routed, closed, used), len(routed)),
        read_gbps,
        clock,
    )
    return [one, two]


def row_of(
    what: tuple[str, Mixture, str, int, float, int], seconds: dict[str, float], read_gbps: float, clock: float
) -> Row:
    """A row of the record, printed: (op, mixture, format, rows, experts, bytes) and what its kernels took."""
    op, m, format, rows, distinct, nbytes = what
    row: Row = {
        "name": f"{op}, {m.name}, {format}, {rows} rows",
        "kernel": op,
        "format": format,
        "N": str(m.inner),
        "K": str(m.d),
        "rows": rows,
        "experts_count": round(distinct),
        "seconds": sum(seconds.values()),
        "bytes": nbytes,
        "product_seconds": seconds["grouped"],
    }
    row = rates(row, read_gbps, clock)
    others = ", ".join(f"{name[:24]} {value * 1e6:.1f}" for name, value in seconds.items() if name != "grouped")
    print(
        f"{row['name']}: {distinct:.0f} experts, {nbytes / 1e6:.0f} MB, {row['seconds'] * 1e6:.1f} us = "
        f"{row['fraction']:.0%}, {row['sm_bytes_per_cycle']:.1f} bytes/SM/cycle; product "
        f"{seconds['grouped'] * 1e6:.1f} us = {nbytes / seconds['grouped'] / 1e9 / read_gbps:.0%}; {others}",
        flush=True,
    )
    return row


def rows_of(read_gbps: float, clock: float, stop: float) -> Iterator[Row]:
    """All rows of the record, while others are compiled; no mixture is begun after `stop`, a monotonic time."""
    cases = [(m, format) for m in MIXTURES for format in m.formats]
    with ThreadPoolExecutor(THREADS) as pool:
        made = {(*case, rows): pool.submit(built, *case, rows) for case in cases for rows in ROWS}
        for m, format in cases:
            if time.monotonic() > stop:
                print(f"out of time before {m.name}, {format}", flush=True)
                pool.shutdown(cancel_futures=True)
                break
            opened, closed = weights_of(m, format)
            for rows in ROWS:
                calls = made.pop((m, format, rows)).result()
                yield from rows_at(m, opened, closed, rows, calls, read_gbps, clock)
