"""The GPU kernels at real shapes: bytes moved against the memory's read bandwidth, measured in the same run.

    python -m bench.kernels [--formats bf16,nvfp4] [--rows 1,4,8,16,32,64,2048] [--seconds 300] [--record]
    python -m bench.kernels --tune e4m3 [--rows 16]

Weights lie stacked, as the engine's do, and a pass walks them layer by layer, several times the L2 in all. `seconds` are
the device's own, from JAX's profiler: the median of a kernel's launches in a pass. `prepare_seconds` is the kernel that
brings the activations of a row into the operand's form, once for all weights that take them. `bytes` are those a call
must move at least: its weight once, the inputs and the outputs. `class` is the instruction that multiplies, fixed per
architecture. `--tune` prints candidates of `dgpp.kernels.linear.triton_tiles`; no choice is made at run time.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
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

from dgpp.formats import Weight
from dgpp.kernels import Kernels, select
from dgpp.kernels.gpu.launch import architecture
from dgpp.kernels.linear import triton as triton_linear
from dgpp.kernels.linear import triton_tiles
from dgpp.kernels.linear.triton_tiles import Tile
from dgpp.kernels.shapes import LinearShape
from dgpp.ops.records import write_record
from tests.kernels.gpu.weights import random_weight

REPEATS = 9
PASS_BYTES = 1 << 30  # of weights walked in one pass
READ_BYTES = 2 << 30
TUNE_BYTES = 100 << 10  # of weights that the stages of a tile hold at most
CLASSES = {"sm_90": "wgmma", "sm_121": "mma.sync"}
GATE = LinearShape("gate_proj, up_proj", 17408, 5120)
DOWN = LinearShape("down_proj", 5120, 17408)
QKV = LinearShape("in_proj_qkv", 10240, 5120)
OUT = LinearShape("out_proj, o_proj", 5120, 6144)
KV = LinearShape("k_proj, v_proj", 1024, 5120)
QWEN_27B = (GATE, DOWN, QKV, OUT, KV)
ROW_PARALLEL = (DOWN, OUT)
FORMATS = ("bf16", "fp8_block128_bf16", "fp8_channel", "nvfp4_divisor", "mxfp4", "mxfp8", "int4_g64", "int8_g64")
Row = dict[str, Any]


def device_seconds(call: Callable[[], Any]) -> dict[str, float]:
    """Median seconds on the device by kernel name, of the launches in one profiled `call` after two others."""
    jax.block_until_ready(call())
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


def candidates(rows: int) -> list[Tile]:
    """Tiles worth trying for one row tile."""
    if rows > 64:
        sizes = itertools.product((128, 256), (128, 256), (64, 128), (8,), (2, 3, 4))
    else:
        sizes = itertools.product((64, 128), (max(16, rows),), (128, 256), (4,), (3, 4, 5, 6, 8))
    return [tile for tile in (Tile(*size) for size in sizes) if tile.columns * tile.bytes * tile.stages <= TUNE_BYTES]


def tune(format: str, rows: int, read_gbps: float, shape: LinearShape, stop: float) -> None:
    """Prints the candidates' speeds, best first."""
    kernels, weight = select("triton"), stacked(format, shape)
    x = jax.random.normal(jax.random.key(2), (rows, shape.k), jnp.float32).astype(jnp.bfloat16)
    found = []
    for tile in candidates(rows):
        if time.monotonic() > stop:
            break
        with mock.patch.object(triton_linear, "tile", lambda *_, tile=tile: tile):
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


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""

    def words(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(prog="python -m bench.kernels", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--formats", type=words, default=list(FORMATS))
    parser.add_argument("--rows", type=words, default=["1", "4", "8", "16", "32", "64", "2048"])
    parser.add_argument("--seconds", type=float, default=400, help="start no new weight after this long")
    parser.add_argument("--tune", type=words, help="formats whose tiles to try, instead")
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
    for shape, format in itertools.product(QWEN_27B, options.formats):
        if time.monotonic() > stop:
            break
        weight = stacked(format, shape)
        found += [linear_row(select("triton"), weight, shape, int(rows), memory["gbps"]) for rows in options.rows]
    if options.record:
        print(write_record("kernels", found, device="h200", extra={"tiles": triton_tiles.__name__}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
