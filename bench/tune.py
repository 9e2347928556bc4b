"""The tiles of the Triton product, chosen on the device of this machine: dgpp/kernels/linear/triton_tiles.json.

    python -m bench.tune [--kinds "e2m1,e4m3 under powers of two"] [--rows 16,64] [--seconds 300] [--write]

For each kind of weight and class of row counts, candidates are compiled, held against float64 on some outputs, and
timed: on a matrix of many programs, and on the leaves of one of few. All candidates keep the kind's class of matrix
instruction, which is not chosen here. The file decides at run time, never a clock.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from bench.device import events, one_by_one
from bench.linear import stacked
from bench.shapes import GATE, MATRICES, Matrix
from dgpp.formats import Weight, format_named
from dgpp.kernels import select
from dgpp.kernels.gpu.launch import architecture
from dgpp.kernels.linear import triton, triton_form, triton_tiles
from dgpp.kernels.linear.triton_tiles import ROWS, Tile

KINDS = {
    "bf16": "bf16",
    "f16": "f16",
    "e4m3": "fp8_block128_bf16",
    "e4m3 under powers of two": "mxfp8",
    "e4m3 in small groups": "int8_g64",
    "e2m1": "nvfp4_divisor",
    "e2m1 under powers of two": "mxfp4",
    "e2m1 in small groups": "int4_g64",
}
"""A format of each kind."""

SHAPES = {"tiles": GATE, "few": next(one for one in MATRICES if one.name == "down_proj")}
"""The matrix that decides each part of the file."""
SHARED = {"sm_90": 227 << 10, "sm_121": 99 << 10}
OUTPUTS = 128  # of which the error is looked at
BOUND = 2.0**-15  # the least that a wrong order of codes would miss by; tests hold the real bound
WARM_SECONDS = 0.03
THREADS = 12


def candidates(kind: str, rows: int) -> list[Tile]:
    """Tiles worth trying for one class of row counts, by what the stages of weights and rows take of shared memory."""
    four_bits, wide = kind.startswith("e2m1"), kind in ("bf16", "f16")
    sizes: list[Any] = []
    if rows == ROWS[-1]:
        each = (64,) if four_bits else (128, 256) if wide else (128,)
        sizes += itertools.product((64, 128), (64, 128), each, (4, 8), (2, 3, 4))
        sizes += itertools.product((128, 256), (256,), (128,), (8,), (3, 4)) if kind == "bf16" else ()
    else:
        each = (64, 128) if four_bits else (128, 256)
        sizes += itertools.product((64, 128), (rows,), each, (4,), (2, 3, 4, 5))
        sizes += itertools.product((128,), (rows,), each[:1], (8,), (3, 4))
    found = []
    for size in sizes:
        tile = Tile(*size)
        weights = tile.bytes * (2 if four_bits else 1) // (2 if wide else 1)
        stage = tile.columns * tile.bytes + 2 * weights * tile.rows
        if tile.stages * stage <= SHARED[architecture()] and tile.columns * 2 >= 32 * tile.warps // 2:
            found.append(tile)
    return found


_chosen = threading.local()


@contextmanager
def tiles_of_threads() -> Iterator[None]:
    """Every trace takes the tile that its thread chose."""

    def tile_for(*_: Any) -> Tile:
        tile: Tile = _chosen.tile
        return tile

    with mock.patch.object(triton, "tile_for", tile_for), mock.patch.object(triton_form, "tile_for", tile_for):
        yield


def built(tile: Tile, matrix: Matrix, weight: Weight, x: jax.Array) -> Any:
    """The compiled products of `x` with every stacked weight."""
    _chosen.tile = tile
    kernels, layers, used = select("triton"), next(iter(weight.arrays.values())).shape[0], jnp.int32(x.shape[0])

    def run(x: jax.Array, weight: Weight) -> list[jax.Array]:
        if matrix.ranges is None:
            return [kernels.linear(x, weight, jnp.int32(i), used) for i in range(layers)]
        return [kernels.linear_leaves(x, weight, jnp.int32(i), used, matrix.ranges) for i in range(layers)]

    return jax.jit(run).lower(x, weight).compile()


def error(y: jax.Array, matrix: Matrix, weight: Weight, x: jax.Array) -> float:
    """The largest distance of a product with the first weight from float64, over the products' magnitudes."""
    kind = format_named(weight.format)
    arrays = {name: np.asarray(array[0]) for name, array in weight.arrays.items()}
    values = kind.decode64(kind.rows(arrays, weight.shape, 0, OUTPUTS), (OUTPUTS, matrix.k))
    exact = np.asarray(x.astype(jnp.float32)).astype(np.float64)
    total = np.asarray(y)[..., :OUTPUTS].astype(np.float64).reshape(-1, x.shape[0], OUTPUTS).sum(0)
    return float((np.abs(total - exact @ values.T) / (np.abs(exact) @ np.abs(values).T)).max())


def timed(kind: str, rows: int, matrix: Matrix, pool: ThreadPoolExecutor, stop: float) -> dict[Tile, float]:
    """Median seconds of the product kernel by tile, without those that failed."""
    weight = stacked(KINDS[kind], matrix.n, matrix.k)
    count = rows if rows < ROWS[-1] else 2048
    x = jax.random.normal(jax.random.key(2), (count, matrix.k), jnp.float32).astype(jnp.bfloat16)
    futures: dict[Tile, Future[Any]] = {
        tile: pool.submit(built, tile, matrix, weight, x) for tile in candidates(kind, rows)
    }
    found = {}
    for tile, future in futures.items():
        if time.monotonic() > stop:
            future.cancel()
            continue
        try:
            run = future.result()
            off = error(run(x, weight)[0], matrix, weight, x)
            seen = events(functools.partial(run, x, weight), warm=WARM_SECONDS)
        except Exception as problem:  # a tile that does not fit
            print(f"  {kind}, {rows} rows, {dataclasses.astuple(tile)}: {str(problem)[:80]!r}", flush=True)
            continue
        seconds = statistics.median(event.seconds for event in seen if "product" in event.name)
        if off < BOUND:
            found[tile] = seconds
        print(
            f"  {kind}, {rows} rows, {matrix.name}, {dataclasses.astuple(tile)}: {seconds * 1e6:.1f} us, "
            f"error 2^{np.log2(off):.1f}" + ("" if off < BOUND else " WRONG"),
            flush=True,
        )
    return found


def best(kind: str, rows: int, matrix: Matrix, pool: ThreadPoolExecutor, stop: float) -> Tile | None:
    """The tile with the least time; None when time ran out."""
    table = timed(kind, rows, matrix, pool, stop)
    return min(table, key=lambda tile: table[tile]) if table and time.monotonic() <= stop else None


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""

    def words(text: str) -> list[str]:
        return text.split(",")

    parser = argparse.ArgumentParser(prog="python -m bench.tune", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kinds", type=words, default=list(KINDS))
    parser.add_argument("--rows", type=words, default=[str(size) for size in ROWS])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--write", action="store_true", help="write triton_tiles.json")
    options = parser.parse_args(arguments)
    one_by_one()
    stop = time.monotonic() + options.seconds
    tuned = triton_tiles.read()
    here = tuned.setdefault(architecture(), {})
    with tiles_of_threads(), ThreadPoolExecutor(THREADS) as pool:
        for kind, rows, (part, matrix) in itertools.product(options.kinds, map(int, options.rows), SHAPES.items()):
            if part == "few" and kind == "bf16":  # few are other matrices there, see `triton_tiles.FEW_OUTPUTS`
                continue
            tile = best(kind, rows, matrix, pool, stop)
            if tile is not None:
                print(f"{kind}, {rows} rows, {part}: {dataclasses.astuple(tile)}", flush=True)
                here[kind] = dataclasses.replace(here[kind], **{part: {**getattr(here[kind], part), rows: tile}})
    if options.write:
        triton_tiles.write(tuned)
        print(triton_tiles.PATH)
    return 0


if __name__ == "__main__":
    sys.exit(main())
