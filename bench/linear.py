"""linear at the shapes of published models, for `bench.kernels`; and what public kernels take for the same sizes."""

from __future__ import annotations

import functools
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp

from bench.device import device_seconds
from bench.partners_gpu import partners
from bench.random_weights import random_weight
from bench.shapes import FORMATS, GATE, HEAD, MATRICES, Matrix
from dgpp.formats import Weight, format_named
from dgpp.kernels import select
from dgpp.kernels.gpu.launch import architecture
from dgpp.kernels.linear.triton_own import tiled_as
from dgpp.kernels.linear.triton_recipe import recipe
from dgpp.kernels.linear.triton_tiles import tuned_for

PASS_BYTES = 1 << 29  # of weights walked in one pass
THREADS = 8  # that compile
WARM_SECONDS = 0.06  # in front of a measurement: the device is never idle for long
MOST_LAYERS = 64
PARTNER_ROWS = (16, 2048)
PARTNER_SECONDS = 30.0
FEW = (1, 16)  # row counts of formats and shapes that are not looked at closely
CLOSE = (
    "bf16", "fp8_block128_bf16", "nvfp4_divisor", "mxfp8", "mxfp4", "int4_g64", "int8_g64", "fp8_channel", "bf12",
)  # fmt: skip
PRODUCTS = ("product", "finish")  # kernels of one product, by name
PREPARES = ("prepare", "arrange", "turn", "quantise", "rotate")  # those that bring rows into an operand's form
Row = dict[str, Any]


def built(matrix: Matrix, format: str, rows: int) -> Any:
    """The compiled products of `rows` rows with each of the stacked weights of a matrix."""
    kernels, layers = select("triton"), layers_of(format, matrix.n, matrix.k)

    def run(x: jax.Array, weight: Weight, used: jax.Array) -> list[jax.Array]:
        if matrix.ranges is None:
            return [kernels.linear(x, weight, jnp.int32(i), used) for i in range(layers)]
        return [kernels.linear_leaves(x, weight, jnp.int32(i), used, matrix.ranges) for i in range(layers)]

    weight = jax.eval_shape(lambda: random_weight(format, layers, matrix.n, matrix.k))
    x = jax.ShapeDtypeStruct((rows, matrix.k), jnp.bfloat16)
    return jax.jit(run).lower(x, weight, jax.ShapeDtypeStruct((), jnp.int32)).compile()


def weight_bytes(weight: Weight) -> int:
    """Bytes of one layer."""
    return sum(array.nbytes // array.shape[0] for array in weight.arrays.values())


def layers_of(format: str, n: int, k: int) -> int:
    """As many layers as PASS_BYTES hold, two at least."""
    each = sum(
        math.prod(packed.shape) * packed.dtype.itemsize
        for packed in format_named(format).arrays((n, k)).values()
        if packed.resident
    )
    return min(max(2, PASS_BYTES // each), MOST_LAYERS)


def stacked(format: str, n: int, k: int) -> Weight:
    """Random weights of `layers_of` layers."""
    return random_weight(format, layers_of(format, n, k), n, k)


def instruction(format: str, k: int, ranges: Any) -> str:
    """The class of the matrix instruction that the file of tiles pins."""
    kind = format_named(format)
    found = recipe(kind, ranges or ((0, k),), k) or tiled_as(kind)
    return tuned_for(architecture(), found).instruction if found else ""


def rates(row: Row, read_gbps: float, clock: float) -> Row:
    """The row with what its seconds and bytes come to: bytes per SM and cycle is what carries over between chips."""
    gbps = row["bytes"] / row["seconds"] / 1e9
    cycles = jax.devices()[0].core_count * clock * row["seconds"]
    return row | {"gbps": gbps, "fraction": gbps / read_gbps, "sm_bytes_per_cycle": row["bytes"] / cycles}


def linear_row(matrix: Matrix, weight: Weight, rows: int, run: Any, read_gbps: float, clock: float) -> Row:
    """A row of the record, printed: of what was `built`."""
    x = jax.random.normal(jax.random.key(2), (rows, matrix.k), jnp.float32).astype(jnp.bfloat16)
    found = device_seconds(functools.partial(run, x, weight, jnp.int32(rows)), WARM_SECONDS)
    prepare = sum(found.get(name, 0.0) for name in PREPARES)
    row: Row = {
        "name": f"linear, {weight.format}, {matrix.model} {matrix.name} {matrix.n}x{matrix.k}, {rows} rows",
        "kernel": "linear_leaves" if matrix.ranges else "linear",
        "format": weight.format,
        "N": str(matrix.n),
        "K": str(matrix.k),
        "class": instruction(weight.format, matrix.k, matrix.ranges),
        "rows": rows,
        "seconds": sum(found.get(name, 0.0) for name in PRODUCTS),
        "bytes": weight_bytes(weight) + rows * (2 * matrix.k + 4 * matrix.n * matrix.leaves),
    }
    row = rates(row, read_gbps, clock)
    if prepare:
        row["prepare_seconds"] = prepare
    show(row, rows, matrix)
    return row


def partner_rows(rows: Sequence[int], read_gbps: float, clock: float) -> list[Row]:
    """Rows of public kernels at the size of GATE, printed; without those that have no kernel for it."""
    found: list[Row] = []
    try:
        measured = partners(GATE.n, GATE.k, [count for count in rows if count in PARTNER_ROWS], PARTNER_SECONDS)
    except RuntimeError as error:
        print(error, flush=True)
        return found
    for row in measured:
        if "error" in row:
            print(f"{row['kernel']}, {row['rows']} rows: {row['error']}", flush=True)
            continue
        row["name"] = f"{row['kernel']}, {GATE.n}x{GATE.k}, {row['rows']} rows"
        found.append(rates(row, read_gbps, clock))
        show(found[-1], row["rows"], GATE)
    return found


def show(row: Row, rows: int, matrix: Matrix) -> None:
    """Prints a row."""
    tflops = 2 * rows * matrix.n * matrix.k / row["seconds"] / 1e12
    print(
        f"{row['name']}: {row['seconds'] * 1e6:.1f} us (+ {row.get('prepare_seconds', 0) * 1e6:.1f}), "
        f"{row['gbps']:.0f} GB/s = {row['fraction']:.0%}, {row['sm_bytes_per_cycle']:.1f} bytes/SM/cycle, "
        f"{tflops:.0f} TFLOP/s",
        flush=True,
    )


def cases(formats: Sequence[str], rows: Sequence[int]) -> Iterator[tuple[Matrix, str, tuple[int, ...]]]:
    """(matrix, format, row counts), what matters most first: FEW counts for every format in HEAD, whose weights are
    more than any cache holds and whose programs are many; all counts for CLOSE formats in GATE and for what releases
    store in its down_proj, FEW of them for the other matrices and formats."""
    few = tuple(count for count in rows if count in FEW) or tuple(rows)
    for format in formats:
        yield HEAD, format, few
    for format in formats:
        if format in CLOSE:
            yield GATE, format, tuple(rows)
    others = [matrix for matrix in MATRICES if matrix not in (GATE, HEAD)]
    for matrix, format in itertools.chain.from_iterable(((m, f) for f in m.formats) for m in others):
        if format in formats:
            yield matrix, format, tuple(rows) if matrix.n == GATE.k and matrix.k == GATE.n else few
    for format in formats:
        if format not in CLOSE:
            yield GATE, format, few


def linear_rows(
    read_gbps: float, clock: float, stop: float, formats: Sequence[str] = FORMATS, rows: Sequence[int] = FEW
) -> Iterator[Row]:
    """Rows of all `cases` that are reached before `stop`, while others are compiled."""
    with ThreadPoolExecutor(THREADS) as pool:
        made: dict[tuple[Matrix, str, int], Future[Any]] = {
            (matrix, format, count): pool.submit(built, matrix, format, count)
            for matrix, format, counts in cases(formats, rows)
            for count in counts
        }
        for matrix, format, counts in cases(formats, rows):
            weight = stacked(format, matrix.n, matrix.k) if time.monotonic() < stop else None
            for count in counts:
                if weight is None or time.monotonic() > stop:
                    print(f"out of time before {format}, {matrix.model} {matrix.name}, {count} rows", flush=True)
                    pool.shutdown(cancel_futures=True)
                    return
                yield linear_row(matrix, weight, count, made.pop((matrix, format, count)).result(), read_gbps, clock)
