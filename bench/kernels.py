"""The GPU kernels at real shapes: bytes moved against the memory's read bandwidth, measured in the same run.

    python -m bench.kernels [--formats bf16,nvfp4] [--rows 1,4,8,16,32,64,2048] [--state] [--experts] [--partners]
        [--seconds 300] [--record]

Weights lie stacked, as the engine's do, and a pass walks them layer by layer, several times the L2 in all. `seconds`
are the device's own, from JAX's profiler: the median of a kernel's launches in a pass. `prepare_seconds` is the kernel
that brings the activations of a row into the operand's form, once for all weights that take them. `bytes` are those a
call must move at least: its weight once, the inputs and the outputs. `sm_bytes_per_cycle` are those of one
multiprocessor at the clock that the driver gave in the run. `class` is the instruction that multiplies, pinned as data.
`--partners` are kernels of PyTorch for the same sizes, in the same run.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from bench import attention, experts, linear
from bench.device import busy_clock, device_seconds, events, one_by_one, read_bandwidth
from bench.shapes import FORMATS
from dgpp.checkpoint.spec import even_ranges
from dgpp.kernels import select
from dgpp.kernels.gpu.launch import architecture
from dgpp.kernels.pick.triton import likeliest
from dgpp.kernels.recurrence import DeltaState
from dgpp.ops.records import write_record

LAYERS = 6  # of states
RECORD_SECONDS = 5  # after which the record is written again, so that a run that is cut short leaves one
Row = dict[str, Any]


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


def likeliest_row(rows: int, read_gbps: float) -> Row:
    """What a sampler is handed of the logits of the Qwen vocabulary; bytes are those of the logits, once."""
    vocabulary = 248320
    logits = 4 * jax.random.normal(jax.random.key(0), (rows, vocabulary), jnp.float32)
    run = jax.jit(functools.partial(likeliest, slices=even_ranges(vocabulary)))
    temperature = jnp.full(rows, 0.6, jnp.float32)
    seconds = sum(event.seconds for event in events(lambda: jax.block_until_ready(run(logits, temperature))))
    return finished("likeliest", f"{vocabulary} ids", rows, seconds, 4 * rows * vocabulary, read_gbps, "f32")


def finished(
    kernel: str, what: str, rows: int, seconds: float, nbytes: int, read_gbps: float, format: str = "bf16"
) -> Row:
    """A row of the record, printed."""
    gbps = nbytes / seconds / 1e9
    row = {"name": f"{kernel}, {what}, {rows} rows", "kernel": kernel, "format": format, "rows": rows}
    row |= {"seconds": seconds, "bytes": nbytes, "gbps": gbps, "fraction": gbps / read_gbps}
    print(f"{row['name']}: {seconds * 1e6:.1f} us, {gbps:.0f} GB/s = {gbps / read_gbps:.0%}", flush=True)
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""

    def words(text: str) -> list[str]:
        return [word for word in text.split(",") if word]

    parser = argparse.ArgumentParser(prog="python -m bench.kernels", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--formats", type=words, default=list(FORMATS), help='of linear; "" for none')
    parser.add_argument("--rows", type=words, default=["1", "4", "8", "16", "32", "64", "2048"])
    parser.add_argument("--seconds", type=float, default=400, help="start no new weight after this long")
    parser.add_argument("--state", action="store_true", help="attention, gated_delta and likeliest too")
    parser.add_argument("--experts", action="store_true", help="the experts' ops too")
    parser.add_argument("--partners", action="store_true", help="PyTorch's kernels too")
    parser.add_argument("--record", action="store_true", help="write bench/records/h200/kernels.json")
    parser.add_argument("--name", default="kernels", help="the record's, where a run has some formats alone")
    options = parser.parse_args(arguments)
    one_by_one()
    stop = time.monotonic() + options.seconds
    memory, clock = read_bandwidth(), busy_clock()
    gbps, rows = memory["gbps"], [int(count) for count in options.rows]
    print(f"memory, read: {gbps:.0f} GB/s, {architecture()} at {clock / 1e6:.0f} MHz", flush=True)
    found = [memory | {"fraction": 1.0}]
    extra = {name: importlib.metadata.version(name) for name in ("triton", "torch")}
    extra["SM clock"] = f"{clock / 1e6:.0f} MHz"
    written = time.monotonic()

    def measured() -> Iterator[Row]:
        if options.experts:
            yield from experts.rows_of(gbps, clock, stop)
        if options.state:
            yield from (delta_row(count, count > 64, gbps) for count in (1, 16, 2048))
            yield from (likeliest_row(count, gbps) for count in (1, 16))
            yield from attention.rows_of(gbps, clock, stop)
        if options.partners:
            yield from linear.partner_rows(rows, gbps, clock)
        yield from linear.linear_rows(gbps, clock, stop, options.formats, rows)

    for row in measured():
        found.append(row)
        if options.record and time.monotonic() > written + RECORD_SECONDS:
            write_record(options.name, found, device="h200", extra=extra)
            written = time.monotonic()
    if options.record:
        print(write_record(options.name, found, device="h200", extra=extra))
    return 0


if __name__ == "__main__":
    sys.exit(main())
