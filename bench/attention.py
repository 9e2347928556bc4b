"""Dense and sparse attention at the shapes of published models, for `bench.kernels --state`.

`seconds` are all launches of an op in one layer. `bytes` are those that a call must move at least: the keys and values
that its rows see, once a slot, the queries and the result. Prefill adds `matmul_ratio`: the products' operations by the
rate of a large bfloat16 product in the same run.
"""

from __future__ import annotations

import collections
import functools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from bench.device import events
from bench.linear import rates
from dgpp.kernels import select
from dgpp.kernels.attention.arguments import Cache

LAYERS = 6  # of caches
PAGE = 64
PREFILL = (2048, 8192)  # the last rows of one prompt of so many tokens
SQUARE = 8192  # sides of the product that gives the rate
Row = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """Heads and widths of one kind of layer, and what it asks of attention."""

    model: str
    heads: int
    kv_heads: int
    dim: int
    dim_v: int
    window: int = 0
    sinks: bool = False
    format: str = "bf16"  # of the cache: or "kv_fp8"
    block: int = 0  # tokens of a block that an indexer selects; 0: dense
    budget: int = 0  # tokens in selected blocks
    index_heads: int = 0
    index_dim: int = 0
    decode: tuple[tuple[int, int], ...] = ((1, 4096), (16, 4096))  # rows, each in a slot of so many tokens
    prefill: bool = False  # PREFILL too

    @property
    def name(self) -> str:
        """For a row of the record."""
        words = [self.model, f"{self.heads}/{self.kv_heads} heads of {self.dim}"]
        words += [f"and {self.dim_v}"] if self.dim_v != self.dim else []
        words += [f"window {self.window}"] if self.window else []
        words += ["sinks"] if self.sinks else []
        return ", ".join(words)


SHAPES = (
    Shape("Qwen3.8-27B", 24, 4, 256, 256, decode=((1, 256), (1, 4096), (1, 32768), (16, 4096)), prefill=True),
    Shape("Qwen3.8-27B", 24, 4, 256, 256, format="kv_fp8"),
    Shape("Qwen3.5-122B-A10B", 32, 2, 256, 256),
    Shape("MiMo-V2.6-Flash", 64, 4, 192, 128),
    Shape("MiMo-V2.6-Flash", 64, 8, 192, 128, window=128, sinks=True, prefill=True),
    Shape("Flint", 32, 4, 128, 128, window=513, sinks=True),
)
SPARSE = Shape(
    "Qwen3.8-Flash-Next", 24, 2, 256, 256, block=4, budget=2048, index_heads=4, index_dim=128,
    decode=((1, 32768), (16, 8192)), prefill=True,
)  # fmt: skip
"""Sizes: spec/models_qwen.md and spec/models_deepseek_mimo_flint.md. GLM and DeepSeek attend to latents, another op."""


def operands(shape: Shape, rows: int, context: int, prefill: bool) -> tuple[dict[str, Any], tuple[Cache, Cache]]:
    """(the arguments of attention but for the caches, the layer and the options; the caches)."""
    slots, pages = (1 if prefill else rows), -(-context // PAGE)
    noise = functools.partial(jax.random.normal, jax.random.key(0), dtype=jnp.bfloat16)
    order = jnp.arange(rows, dtype=jnp.int32)
    fixed: dict[str, Any] = {
        "q": noise((rows, shape.heads, shape.dim)),
        "k": noise((rows, shape.kv_heads, shape.dim)),
        "v": noise((rows, shape.kv_heads, shape.dim_v)),
        "page_table": jax.random.permutation(jax.random.key(1), slots * pages).reshape(slots, pages).astype(jnp.int32),
        "position": order + (context - rows) if prefill else 0 * order + (context - 1),
        "slot": 0 * order if prefill else order,
        "kv_index": jnp.arange(shape.heads, dtype=jnp.int32) * shape.kv_heads // shape.heads,
        "used": jnp.int32(rows),
        "zero": jnp.int32(0),
    }
    front = (LAYERS, slots * pages, PAGE, shape.kv_heads)

    def cache(dim: int) -> Cache:
        if shape.format == "bf16":
            return noise((*front, dim))
        codes = jax.random.randint(jax.random.key(2), (*front, dim), 0, 0x7F, jnp.uint8)
        return {"codes": codes, "scale": jnp.full(front, 2.0**-8)}

    return fixed, (cache(shape.dim), cache(shape.dim_v))


def attention(shape: Shape, layer: Any, k: Cache, v: Cache, fixed: dict[str, Any]) -> tuple[Any, ...]:
    """(out, cache_k, cache_v) of the Triton kernels."""
    kernels, options = select("triton"), {"scale": shape.dim**-0.5, "cache_k": k, "cache_v": v, "layer": layer}
    if not shape.block:
        sinks = jnp.zeros(shape.heads) if shape.sinks else None
        return kernels.attention(**fixed, **options, sinks=sinks, window=shape.window)
    fixed = dict(fixed)
    queries, index = fixed.pop("index_q"), fixed.pop("index")
    where = (layer, *(fixed[name] for name in ("page_table", "position", "slot", "used", "zero")))
    scores = kernels.index_scores(queries, index, *where, block=shape.block)
    blocks = kernels.select_blocks(scores, shape.budget // shape.block)
    return kernels.sparse_attention(**fixed, **options, blocks=blocks, block=shape.block)


def indexed(shape: Shape, fixed: dict[str, Any], caches: tuple[Cache, Cache]) -> dict[str, Any]:
    """`fixed` with the index queries and the plane of compressed keys."""
    assert isinstance(caches[0], jax.Array)
    noise = functools.partial(jax.random.normal, jax.random.key(3), dtype=jnp.bfloat16)
    plane = (*caches[0].shape[:2], PAGE // shape.block, shape.index_dim)
    return fixed | {"index_q": noise((len(fixed["slot"]), shape.index_heads, shape.index_dim)), "index": noise(plane)}


def seconds_of(call: Callable[[], Any]) -> dict[str, float]:
    """Seconds of every kernel in a layer, by name."""
    found = collections.defaultdict(list)
    for event in events(call):
        found[event.name].append(event.seconds)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def matmul_rate() -> float:
    """Operations a second of a large bfloat16 product by XLA."""
    a = jax.random.normal(jax.random.key(0), (SQUARE, SQUARE), jnp.bfloat16)
    product = jax.jit(jnp.matmul)
    return 2 * SQUARE**3 / max(seconds_of(lambda: product(a, a)).values())


def shape_rows(shape: Shape, rows: int, context: int, read_gbps: float, clock: float, rate: float = 0.0) -> list[Row]:
    """Rows of the record for one batch: attention, and the indexer of sparse attention. `rate`: rows of a prompt."""
    fixed, caches = operands(shape, rows, context, prefill=rate > 0)
    held = list(caches)
    if shape.block:
        fixed = indexed(shape, fixed, caches)

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def run(k: Cache, v: Cache, fixed: dict[str, Any]) -> tuple[Any, ...]:
        outs = []
        for layer in range(LAYERS):
            out, k, v = attention(shape, jnp.int32(layer), k, v, fixed)
            outs.append(out)
        return k, v, outs

    def in_place() -> Any:
        held[:] = jax.block_until_ready(run(*held, fixed))[:2]

    found = seconds_of(in_place)
    widths, slots = shape.dim + shape.dim_v, len(fixed["page_table"])
    seen = min(context, shape.window or shape.budget or context)
    a_token = shape.kv_heads * (2 * widths if shape.format == "bf16" else widths + 8)
    tokens = context if rate and not shape.window else seen if not rate else min(context, seen + rows)
    moved: dict[str, tuple[tuple[str, ...], int]] = {
        "sparse_attention" if shape.block else "attention": (
            ("write", "write_fp8", "attend", "merge"),
            slots * tokens * a_token + rows * shape.heads * (2 * shape.dim + 4 * shape.dim_v),
        )
    }
    if shape.block:
        blocks = context // shape.block
        scores = 4 * rows * blocks
        index = slots * blocks * shape.index_dim * 2 + rows * shape.index_heads * shape.index_dim * 2
        moved |= {
            "index_scores": (("scores",), index + scores),
            "select_blocks": (("select",), scores + 4 * rows * shape.budget // shape.block),
        }
    made = []
    for op, (kernels, nbytes) in moved.items():
        what = f"{op}, {shape.name}, {shape.format}, context {context}, {'prefill' if rate else 'decode'}, {rows} rows"
        row: Row = {"name": what, "kernel": op, "format": shape.format, "rows": rows}
        row |= {"seconds": sum(found[name] for name in kernels if name in found), "bytes": nbytes}
        row = rates(row, read_gbps, clock)
        if rate and op.endswith("attention"):
            each = sum(min(context - i, seen) for i in range(rows))
            row["matmul_ratio"] = 2 * each * shape.heads * widths / row["seconds"] / rate
        share = f", {row['matmul_ratio']:.0%} of the matmul rate" if "matmul_ratio" in row else ""
        print(
            f"{what}: {row['seconds'] * 1e6:.1f} us, {row['gbps']:.0f} GB/s = {row['fraction']:.0%} of read{share}",
            flush=True,
        )
        made.append(row)
    return made


def rows_of(read_gbps: float, clock: float, stop: float) -> Iterator[Row]:
    """All rows of the record; no shape is begun after `stop`, of `time.monotonic`."""
    rate = matmul_rate()
    print(f"matmul, bf16: {rate / 1e12:.0f} TFLOP/s", flush=True)
    for shape in (SHAPES[0], SPARSE, *SHAPES[1:]):
        if time.monotonic() > stop:
            break
        for rows, context in shape.decode:
            yield from shape_rows(shape, rows, context, read_gbps, clock)
        if shape.prefill:
            yield from shape_rows(shape, *PREFILL, read_gbps, clock, rate)
