"""The GPU kernels at real shapes: bytes moved against the memory's read bandwidth, measured in the same run.

    python -m bench.kernels [--formats bf16,nvfp4] [--rows 1,4,8,16,32,64,2048] [--seconds 300] [--record]
    python -m bench.kernels --tune nvfp4 [--rows 16]

Weights lie stacked, as the engine's do, and a pass walks them layer by layer, several times the L2 in all. `seconds`
are the device's own, from JAX's profiler: the median of a kernel's launches in a pass. `prepare_seconds` is the kernel
that brings the activations of a row into the operand's form, once for all weights that take them. `bytes` are those a
call must move at least: its weight once, the inputs and the outputs. `class` is the instruction that multiplies, fixed
per architecture. `--tune` prints candidates of `dgpp.kernels.linear.triton_tiles`; no choice is made at run time.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import importlib.metadata
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp

from bench.random_weights import random_weight
from dgpp.formats import Weight
from dgpp.kernels import Kernels, select
from dgpp.kernels.gpu.launch import architecture
from dgpp.kernels.linear import triton as triton_linear
from dgpp.kernels.linear import triton_tiles
from dgpp.kernels.linear.triton_tiles import Tile
from dgpp.kernels.recurrence import DeltaState
from dgpp.kernels.shapes import LinearShape
from dgpp.ops.records import write_record

REPEATS = 9
WARM_SECONDS = 0.25
LAYERS = 6  # of caches and states
PASS_BYTES = 1 << 30  # of weights walked in one pass
READ_BYTES = 2 << 30
TUNE_BYTES = 100 << 10  # of weights that the stages of a tile hold at most
CLASSES = {"sm_90": "wgmma", "sm_121": "mma.sync"}
GATE = LinearShape("gate_proj, up_proj", 17408, 5120)
DOWN = LinearShape("down_proj", 5120, 17408)
QKV = LinearShape("in_proj_qkv", 10240, 5120)
OUT = LinearShape("out_proj, o_proj", 5120, 6144)
KV = LinearShape("k_proj, v_proj", 1024, 5120)
QWEN_27B = (GATE, DOWN, QKV, KV, OUT)
ROW_PARALLEL = (DOWN, OUT)
FORMATS = ("bf16", "fp8_block128_bf16", "fp8_channel", "nvfp4_divisor", "mxfp4", "mxfp8", "int4_g64", "int8_g64")
SERVED = ("bf16", "fp8_block128_bf16", "nvfp4_divisor")  # those of the 27B: at every number of rows
Row = dict[str, Any]


def device_seconds(call: Callable[[], Any]) -> dict[str, float]:
    """Median seconds on the device by kernel name, of the launches in a profiled `call` after others."""
    jax.block_until_ready(call())
    started = time.monotonic()
    while time.monotonic() < started + WARM_SECONDS:  # the clock of an idle device needs a while to rise
        jax.block_until_ready(call())
    found = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            jax.block_until_ready(call())
        path = next(Path(folder).rglob("*.xplane.pb"))
        for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
            if plane.name.startswith("/device:GPU"):
                for event in itertools.chain.from_iterable(line.events for line in plane.lines):
                    found[event.name].append(event.duration_ns * 1e-9)
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def read_bandwidth() -> Row:
    """A row: the sum of 2 GiB, eight times in a call, the call's whole time."""
    data = jax.random.normal(jax.random.key(0), (8, READ_BYTES // 4), jnp.float32)

    @jax.jit
    def total(data: jax.Array) -> list[jax.Array]:
        return [jnp.sum(part) for part in data]

    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        jax.block_until_ready(total(data))
        seconds.append((time.perf_counter() - started) / len(data))
    best = statistics.median(seconds[2:])
    return {"name": "memory, read", "seconds": best, "bytes": READ_BYTES, "gbps": READ_BYTES / best / 1e9}


def linear_seconds(kernels: Kernels, weight: Weight, x: jax.Array, ranges: Any) -> dict[str, float]:
    """Seconds of the kernels of one product, of `x` with each of the stacked weights."""
    layers = next(iter(weight.arrays.values())).shape[0]
    used = jnp.int32(x.shape[0])

    @jax.jit
    def run(x: jax.Array, weight: Weight, used: jax.Array) -> list[jax.Array]:
        if ranges is None:
            return [kernels.linear(x, weight, jnp.int32(i), used) for i in range(layers)]
        return [kernels.linear_leaves(x, weight, jnp.int32(i), used, ranges) for i in range(layers)]

    found = device_seconds(lambda: run(x, weight, used))
    return {kernel: sum(found[name] for name in found if kernel in name) for kernel in ("product", "prepare")}


def leaves(shape: LinearShape) -> Any:
    """Four quarters of K for a row-parallel weight, else None."""
    quarter = shape.k // 4
    return tuple((i * quarter, (i + 1) * quarter) for i in range(4)) if shape in ROW_PARALLEL else None


def weight_bytes(weight: Weight) -> int:
    """Bytes of one layer."""
    return sum(array.nbytes // array.shape[0] for array in weight.arrays.values())


def stacked(format: str, shape: LinearShape) -> Weight:
    """As many layers as PASS_BYTES hold, two at least."""
    layers = max(2, PASS_BYTES // weight_bytes(random_weight(format, 1, shape.n, shape.k)))
    return random_weight(format, min(layers, 64), shape.n, shape.k)


def linear_row(kernels: Kernels, weight: Weight, shape: LinearShape, rows: int, read_gbps: float) -> Row:
    """A row of the record."""
    x = jax.random.normal(jax.random.key(2), (rows, shape.k), jnp.float32).astype(jnp.bfloat16)
    ranges = leaves(shape)
    measured = linear_seconds(kernels, weight, x, ranges)
    seconds = measured["product"]
    nbytes = weight_bytes(weight) + rows * (2 * shape.k + 4 * shape.n * len(ranges or (0,)))
    gbps = nbytes / seconds / 1e9
    row = {
        "name": f"linear, {weight.format}, {shape.n}x{shape.k} ({shape.name}), {rows} rows",
        "kernel": "linear_leaves" if ranges else "linear",
        "format": weight.format,
        "N": str(shape.n),
        "K": str(shape.k),
        "class": CLASSES[architecture()],
        "rows": rows,
        "seconds": seconds,
        "bytes": nbytes,
        "gbps": gbps,
        "fraction": gbps / read_gbps,
    }
    if measured["prepare"]:
        row["prepare_seconds"] = measured["prepare"]
    tflops = 2 * rows * shape.n * shape.k / seconds / 1e12
    print(
        f"{row['name']}: {seconds * 1e6:.1f} us (+ {measured['prepare'] * 1e6:.1f}), {gbps:.0f} GB/s = "
        f"{gbps / read_gbps:.0%}, {tflops:.0f} TFLOP/s",
        flush=True,
    )
    return row


def candidates(format: str, rows: int) -> list[Tile]:
    """Tiles worth trying for one row tile."""
    four_bits, wide = "4" in format, format == "bf16"
    sizes: list[Any] = []
    if rows > 64:
        sizes += itertools.product((128,), (128,), (64,) if four_bits else (128,), (8,), (2, 3, 4))
        sizes += itertools.product((64,), (128,), (64,) if four_bits else (128,), (4,), (2, 3, 4))
        sizes += itertools.product((128, 256), (256,), (128,), (8,), (3, 4)) if wide else ()
    else:
        tile = next(size for size in triton_tiles.ROWS if size >= rows)
        sizes += itertools.product((64,), (tile,), (64, 128) if four_bits else (128, 256), (4,), (3, 4, 5, 6))
        sizes += itertools.product((128,), (tile,), (64,) if four_bits else (128,), (4, 8), (3, 4, 6))
    return [tile for tile in (Tile(*size) for size in sizes) if tile.columns * tile.bytes * tile.stages <= TUNE_BYTES]


def tune(format: str, rows: int, read_gbps: float, shape: LinearShape, stop: float) -> None:
    """Prints the candidates' speeds, best first."""
    kernels, weight = select("triton"), stacked(format, shape)
    x = jax.random.normal(jax.random.key(2), (rows, shape.k), jnp.float32).astype(jnp.bfloat16)
    found = []
    for tile in candidates(format, rows):
        if time.monotonic() > stop:
            break
        with mock.patch.object(triton_linear, "tile_for", lambda *_, tile=tile: tile):
            try:
                seconds = linear_seconds(kernels, weight, x, leaves(shape))["product"]
            except Exception as error:  # does not fit the shared memory
                print("  ", tile, str(error)[:80].replace("\n", " "), flush=True)
                continue
        found.append((seconds, tile))
    for seconds, tile in sorted(found, key=lambda pair: pair[0]):
        gbps = weight_bytes(weight) / seconds / 1e9
        print(
            f"  {format} {rows} rows {dataclasses.astuple(tile)}: {seconds * 1e6:.1f} us {gbps / read_gbps:.0%}",
            flush=True,
        )


def attention_row(rows: int, context: int, prefill: bool, read_gbps: float) -> Row:
    """Rows that decode, each in a slot of `context` tokens, or the last rows of one prompt of that length."""
    heads, kv_heads, dim, page = 24, 4, 256, 64
    slots, pages = (1 if prefill else rows), -(-context // page)
    noise = functools.partial(jax.random.normal, jax.random.key(0), dtype=jnp.bfloat16)
    fixed = {
        "q": noise((rows, heads, dim)),
        "k": noise((rows, kv_heads, dim)),
        "v": noise((rows, kv_heads, dim)),
        "page_table": jax.random.permutation(jax.random.key(1), slots * pages).reshape(slots, pages).astype(jnp.int32),
        "position": jnp.arange(context - rows, context, dtype=jnp.int32) if prefill else jnp.full(rows, context - 1),
        "slot": jnp.zeros(rows, jnp.int32) if prefill else jnp.arange(rows, dtype=jnp.int32),
        "kv_index": jnp.arange(heads, dtype=jnp.int32) * kv_heads // heads,
        "used": jnp.int32(rows),
        "zero": jnp.int32(0),
    }
    planes = [noise((LAYERS, slots * pages, page, kv_heads, dim)) for _ in range(2)]

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def run(k: jax.Array, v: jax.Array, fixed: dict[str, jax.Array]) -> tuple[Any, ...]:
        outs = []
        for layer in range(LAYERS):
            out, k, v = select("triton").attention(
                **fixed, cache_k=k, cache_v=v, layer=jnp.int32(layer), scale=dim**-0.5
            )
            outs.append(out)
        return k, v, outs

    def in_place() -> Any:
        planes[:] = jax.block_until_ready(run(*planes, fixed))[:2]

    found = device_seconds(in_place)
    seconds = sum(found[name] for name in found if name in ("write", "attend", "merge"))
    nbytes = 4 * slots * context * kv_heads * dim + 6 * rows * heads * dim
    what = f"24/4 heads of 256, context {context}, {'prefill' if prefill else 'decode'}"
    return finished("attention", what, rows, seconds, nbytes, read_gbps)


def delta_row(rows: int, prefill: bool, read_gbps: float) -> Row:
    """Rows of one prompt, or a row for each of as many slots: 48 value heads and 16 key heads of 128 x 128."""
    keys, values, dim, width = 16, 48, 128, 4
    slots = 1 if prefill else rows
    f32 = functools.partial(jax.random.uniform, jax.random.key(0), dtype=jnp.float32)
    state = DeltaState(
        f32((LAYERS, slots, values, dim, dim)),
        f32((LAYERS, slots, width, keys, dim)),
        f32((LAYERS, slots, width, values, dim)).astype(jnp.bfloat16),
        -f32((LAYERS, slots, width, values, 2)),
    )
    order = jnp.arange(rows, dtype=jnp.int32)
    position, slot, last = (order + 64, 0 * order, 0 * order + rows - 1) if prefill else (0 * order + 64, order, order)
    inputs = [0.1 * f32((rows, keys, dim))] * 2 + [f32((rows, values, dim)).astype(jnp.bfloat16), -f32((rows, values))]
    fixed = (position, slot, order >= 0, last, jnp.zeros(slots, jnp.int32), jnp.int32(rows))
    key_index = jnp.arange(values, dtype=jnp.int32) * keys // values

    @functools.partial(jax.jit, donate_argnums=0)
    def run(state: DeltaState, inputs: Any, fixed: Any) -> Any:
        outs = []
        for layer in range(LAYERS):
            more = (jnp.int32(layer), *fixed, key_index, jnp.int32(0))
            o, state = select("triton").gated_delta(*inputs, -inputs[3], state, *more)
            outs.append(o)
        return state, outs

    held = [state]

    def in_place() -> Any:
        held[0] = jax.block_until_ready(run(held[0], inputs, fixed))[0]

    seconds = device_seconds(in_place)["segments"]
    nbytes = 8 * slots * values * dim * dim + rows * (8 * keys * dim + 6 * values * dim)
    what = f"48 heads of 128x128, {'prefill' if prefill else 'decode'}"
    return finished("gated_delta", what, rows, seconds, nbytes, read_gbps)


def finished(kernel: str, what: str, rows: int, seconds: float, nbytes: int, read_gbps: float) -> Row:
    """A row of the record, printed."""
    gbps = nbytes / seconds / 1e9
    row = {"name": f"{kernel}, {what}, {rows} rows", "kernel": kernel, "format": "bf16", "rows": rows}
    row |= {"seconds": seconds, "bytes": nbytes, "gbps": gbps, "fraction": gbps / read_gbps}
    print(f"{row['name']}: {seconds * 1e6:.1f} us, {gbps:.0f} GB/s = {gbps / read_gbps:.0%}", flush=True)
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""

    def words(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(prog="python -m bench.kernels", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--formats", type=words, default=list(FORMATS))
    parser.add_argument("--rows", type=words, default=["1", "4", "8", "16", "32", "64", "2048"])
    parser.add_argument("--seconds", type=float, default=400, help="start no new weight after this long")
    parser.add_argument("--tune", type=words, help="formats whose tiles to try, instead")
    parser.add_argument("--state", action="store_true", help="attention and gated_delta too")
    parser.add_argument("--record", action="store_true", help="write bench/records/h200/kernels.json")
    options = parser.parse_args(arguments)
    stop = time.monotonic() + options.seconds
    memory = read_bandwidth()
    print(f"memory, read: {memory['gbps']:.0f} GB/s, {architecture()}", flush=True)
    if options.tune:
        for format in options.tune:
            for rows in options.rows:
                tune(format, int(rows), memory["gbps"], GATE, stop)
        return 0
    found = [memory | {"fraction": 1.0}]
    if options.state:
        found += [attention_row(rows, 4096, False, memory["gbps"]) for rows in (1, 16)]
        found += [attention_row(2048, 8192, True, memory["gbps"])]
        found += [delta_row(rows, False, memory["gbps"]) for rows in (1, 16)]
        found += [delta_row(2048, True, memory["gbps"])]
    for shape, format in itertools.product(QWEN_27B, options.formats):
        if time.monotonic() > stop:
            break
        if shape is not GATE and format not in SERVED:
            continue
        weight = stacked(format, shape)
        counts = options.rows if shape is GATE and format in SERVED else ["16"]
        found += [linear_row(select("triton"), weight, shape, int(rows), memory["gbps"]) for rows in counts]
    if options.record:
        versions = {name: importlib.metadata.version(name) for name in ("triton", "jax-triton")}
        print(write_record("kernels", found, device="h200", extra=versions))
    return 0


if __name__ == "__main__":
    sys.exit(main())
