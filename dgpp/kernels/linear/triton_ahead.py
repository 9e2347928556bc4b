"""Fetching a matrix into the L2 cache before the product that reads it begins.

Between two products of a step the memory is idle: small kernels, and the gaps between launches. The kernel that makes
the rows of a product knows the matrix that will read them, so it has some programs more, which ask for the first bytes
of it. That is a hint: no result depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import triton
import triton.language as tl

from dgpp.formats import format_named
from dgpp.kernels.gpu.launch import ASSEMBLY, architecture
from dgpp.kernels.linear.fed import Feed

BYTES = {"sm_90": 24 << 20, "sm_121": 4 << 20}
"""What is fetched of a matrix: what the memory delivers in the time between two products, and less than half of L2."""
MULTIPROCESSORS = {"sm_90": 132, "sm_121": 48}
MOST_ROWS = 64  # a product of more rows is not bound by the memory
ALIGNED = 16  # what addresses and sizes are multiples of
LINE = 128  # bytes of a line of the cache


@triton.jit
def fetch(
    array: tl.tensor,  # a stack of matrices of STRIDE bytes
    layer: tl.tensor,  # int32 scalar: the place in the stack
    program: tl.tensor,  # of those that fetch
    LAYERS: tl.constexpr,
    STRIDE: tl.constexpr,
    TOTAL: tl.constexpr,  # bytes
    EACH: tl.constexpr,  # bytes of a thread
    THREADS: tl.constexpr,  # of a program
) -> None:
    """Asks for THREADS stretches of EACH bytes of the first TOTAL of a matrix."""
    place = tl.minimum(tl.maximum(tl.load(layer), 0), LAYERS - 1).to(tl.int64)
    at = (program * THREADS + tl.arange(0, THREADS)).to(tl.int64) * EACH
    size = tl.minimum(tl.maximum(TOTAL - at, 0), EACH).to(tl.int32)
    tl.inline_asm_elementwise(
        """
        {
        .reg .pred some;
        setp.ne.s32 some, $2, 0;
        @some cp.async.bulk.prefetch.L2.global [$1], $2;
        mov.u32 $0, 0;
        }
        """,
        "=r,l,r",
        [array.to(tl.uint64, bitcast=True) + (place * STRIDE + at).to(tl.uint64), size],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@dataclass(frozen=True)
class Ahead:
    """The matrix that a kernel fetches, and how much of it."""

    array: jax.Array | None
    place: jax.Array | None
    layers: int
    stride: int  # bytes, likewise total
    total: int

    def arguments(self, absent: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Those of `fetch`; `absent` stands for what is not there."""
        return (absent if self.array is None else self.array), (absent if self.place is None else self.place)

    def rows(self, programs: int) -> int:
        """How many rows of `programs` programs a kernel has more, so that every multiprocessor has one that fetches: a
        few alone would take long to ask."""
        return -(-MULTIPROCESSORS[architecture()] // programs) if self.total else 0

    def constants(self, rows: int, programs: int, warps: int) -> dict[str, Any]:
        """NEXT_FROM and the constants of `fetch`, for a kernel of `rows` rows of `programs` programs of `warps`
        warps."""
        threads = 32 * warps
        each = -(-self.total // max(1, self.rows(programs) * programs * threads * LINE)) * LINE
        sizes = {"FROM": rows, "LAYERS": self.layers, "STRIDE": self.stride, "TOTAL": self.total, "EACH": each}
        return {f"NEXT_{name}": size for name, size in (sizes | {"THREADS": threads}).items()}


NOTHING = Ahead(None, None, 1, 0, 0)


def ahead(feeds: Sequence[Feed], rows: int) -> Ahead:
    """What to fetch for the first of the matrices that will read `rows` rows, but for experts, which are not chosen
    yet, and where the layer is not known."""
    for feed in feeds:
        if not ASSEMBLY or rows > MOST_ROWS or feed.layer is None or len(feed.weight.shape) != 2:
            continue
        name, array = max(feed.weight.arrays.items(), key=lambda one: _bytes(one[1]))
        packed = format_named(feed.weight.format).arrays(feed.weight.shape)[name]
        layers = array.shape[0] if array.ndim > len(packed.shape) else 1
        stride = _bytes(array) // layers
        total = min(BYTES[architecture()], stride) // LINE * LINE
        if stride % ALIGNED == 0 and total:
            return Ahead(array, feed.weight.place(feed.layer), layers, stride, total)
    return NOTHING


def _bytes(array: jax.Array) -> int:
    return array.size * np.dtype(array.dtype).itemsize
