"""The native CPU kernels at real shapes: bytes moved against the memory's bandwidth, and time against OpenBLAS.

    python -m bench.kernels_cpu [--rows 1,2,4,8,64,256] [--contexts 200,1000] [--prefill 64,256] [--record]

Weights lie as the engine's do and are walked layer by layer, so that every call finds its weight in memory rather than
in a cache. `bytes` are those that a call must move at least: its weight once, the inputs and the outputs. OpenBLAS, the
yardstick for many rows, is NumPy's float32 product of the same shape, on weights widened beforehand: twice the bytes.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.bandwidth import measure
from dgpp.checkpoint.load import aligned_empty
from dgpp.formats import Weight
from dgpp.formats.bf16 import BFLOAT16
from dgpp.kernels import Kernels, select
from dgpp.kernels.native.threads import cores
from dgpp.kernels.shapes import SMOLLM2_135M, SMOLLM2_135M_ATTENTION, AttentionShape, LinearShape
from dgpp.ops.records import write_record

REPEATS = 7
PAGE_SLACK = 8  # pages of the pool beyond what the contexts take
Row = dict[str, Any]


def best(call: Callable[[], Any], calls: int) -> float:
    """Seconds of one of the `calls` that `call` makes, in the best of REPEATS runs after a first one."""
    call()
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds) / calls


def values(shape: tuple[int, ...]) -> np.ndarray:
    """bfloat16 noise, repeated to fill the shape, in memory like a loaded checkpoint's."""
    noise = np.random.default_rng(0).standard_normal(1 << 16).astype(np.float32).astype(BFLOAT16)
    filled = aligned_empty(shape, BFLOAT16)
    filled[...] = np.resize(noise, shape)
    return filled


def linear_row(kernels: Kernels, shape: LinearShape, rows: int, read_gbps: float) -> Row:
    """One weight shape at a number of rows."""
    layers = max(1, shape.layers)
    weight = Weight({"values": jax.device_put(values((layers, shape.n, shape.k)))}, "bf16", (shape.n, shape.k))
    x = jnp.asarray(values((rows, shape.k)))
    calls = layers if layers > 1 else 2

    @jax.jit
    def run(x: jax.Array, weight: Weight) -> jax.Array:
        def step(i: jax.Array, total: jax.Array) -> jax.Array:
            return total + kernels.linear(x, weight, i % layers, jnp.int32(rows))[0, 0]

        return jax.lax.fori_loop(0, calls, step, jnp.float32(0))

    seconds = best(lambda: run(x, weight).block_until_ready(), calls)
    nbytes = 2 * shape.n * shape.k + rows * (2 * shape.k + 4 * shape.n)
    row = finished("linear", f"{shape.n}x{shape.k} ({shape.name})", rows, seconds, nbytes, read_gbps)
    wide, wide_x = values((shape.n, shape.k)).astype(np.float32), values((rows, shape.k)).astype(np.float32)
    row["openblas_seconds"] = best(lambda: wide_x @ wide.T, 1)
    report(row, 2 * rows * shape.n * shape.k)
    return row


def attention_row(
    kernels: Kernels, shape: AttentionShape, *, rows: int, context: int, prefill: bool, read_gbps: float
) -> Row:
    """Rows that decode, each in a slot of `context` tokens, or the last rows of one prompt of that length."""
    slots, pages = (1 if prefill else rows), -(-context // shape.page)
    cache = (2, slots * pages + PAGE_SLACK, shape.page, shape.kv_heads, shape.dim)
    position = range(context - rows, context) if prefill else [context - 1] * rows
    fixed = {
        "q": values((rows, shape.heads, shape.dim)),
        "k": values((rows, shape.kv_heads, shape.dim)),
        "v": values((rows, shape.kv_heads, shape.dim)),
        "page_table": np.random.default_rng(0).permutation(slots * pages).reshape(slots, pages).astype(np.int32),
        "position": np.array(position, np.int32),
        "slot": np.array([0] * rows if prefill else range(rows), np.int32),
        "kv_index": np.array(shape.kv_index, np.int32),
        "used": np.int32(rows),
        "zero": np.int32(0),
    }
    calls = 20

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def run(cache_k: jax.Array, cache_v: jax.Array, fixed: dict[str, jax.Array]) -> tuple[jax.Array, ...]:
        def step(i: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            operands = fixed | {"cache_k": state[0], "cache_v": state[1], "layer": i % 2}
            out, *caches = kernels.attention(**operands, scale=shape.dim**-0.5)
            return *caches, state[2] + out[0, 0, 0]

        return jax.lax.fori_loop(0, calls, step, (cache_k, cache_v, jnp.float32(0)))

    state = [jnp.asarray(values(cache)) for _ in range(2)]

    def in_place() -> None:
        state[:] = jax.block_until_ready(run(*state, fixed))[:2]

    seconds = best(in_place, calls)
    nbytes = 4 * slots * context * shape.kv_heads * shape.dim + 6 * rows * shape.heads * shape.dim
    what = f"{shape.name}, {'prefill' if prefill else 'decode'}, context {context}"
    row = finished("attention", what, rows, seconds, nbytes, read_gbps)
    report(row, 4 * (sum(position) + rows) * shape.heads * shape.dim)
    return row


def finished(kernel: str, what: str, rows: int, seconds: float, nbytes: int, read_gbps: float) -> Row:
    """A row of the record."""
    name = f"{kernel}, {what}, {rows} {'row' if rows == 1 else 'rows'}"
    gbps = nbytes / seconds / 1e9
    row = {"name": name, "kernel": kernel, "format": "bf16", "rows": rows, "seconds": seconds, "bytes": nbytes}
    return row | {"gbps": gbps, "fraction": gbps / read_gbps}


def report(row: Row, flops: int) -> None:
    """Prints a row, with the arithmetic it took."""
    speed = f"{row['gbps']:.2f} GB/s = {row['fraction']:.0%} of read, {flops / row['seconds'] / 1e9:.1f} GFLOP/s"
    blas = f", OpenBLAS {row['openblas_seconds'] * 1e6:.0f} us" if "openblas_seconds" in row else ""
    print(f"{row['name']}: {row['seconds'] * 1e6:.1f} us, {speed}{blas}", flush=True)


def measured(rows: Sequence[int], contexts: Sequence[int], prefill: Sequence[int]) -> list[Row]:
    """All rows of the record; the memory's read bandwidth is the first."""
    kernels = select("cpu")
    memory = measure(cores())
    print(f"memory, read: {memory.read_gbps:.2f} GB/s on {cores()} cores", flush=True)
    read = {"seconds": memory.read_seconds, "bytes": memory.nbytes, "gbps": memory.read_gbps, "fraction": 1.0}
    found: list[Row] = [{"name": "memory, read", **read}]
    for shape in SMOLLM2_135M:
        found += [linear_row(kernels, shape, count, memory.read_gbps) for count in rows]
    for context in contexts:
        one = functools.partial(attention_row, kernels, SMOLLM2_135M_ATTENTION, context=context)
        found += [one(rows=count, prefill=False, read_gbps=memory.read_gbps) for count in rows if count <= 16]
        found += [one(rows=count, prefill=True, read_gbps=memory.read_gbps) for count in prefill if count <= context]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""

    def numbers(text: str) -> list[int]:
        return [int(number) for number in text.split(",")]

    parser = argparse.ArgumentParser(prog="python -m bench.kernels_cpu", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rows", type=numbers, default=[1, 2, 4, 8, 64, 256])
    parser.add_argument("--contexts", type=numbers, default=[200, 1000])
    parser.add_argument("--prefill", type=numbers, default=[64, 256], help="rows of a prompt that attend at once")
    parser.add_argument("--record", action="store_true", help="write bench/records/<device>/kernels_cpu.json")
    options = parser.parse_args(arguments)
    rows = measured(options.rows, options.contexts, options.prefill)
    if options.record:
        print(write_record("kernels_cpu", rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
