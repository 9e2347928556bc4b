"""Rings on a GPU: a batch's rows put in, in place, as `dgpp.kernels.rings.write_ring` does."""

from __future__ import annotations

import jax
import triton
import triton.language as tl

from dgpp.kernels.gpu.clamp import clamped
from dgpp.kernels.gpu.launch import Out, launch

COLUMNS = 4096  # of one program at most


@triton.jit
def write_rows(
    x: tl.tensor,  # [R, N]
    ring: tl.tensor,  # [L, S, DEPTH, N]; `new` is the same memory
    layer: tl.tensor,  # int32 scalar, likewise used
    position: tl.tensor,  # int32 [R], likewise slot, last
    slot: tl.tensor,
    last: tl.tensor,
    used: tl.tensor,
    read: tl.tensor,  # what was computed from the ring's old rows
    new: tl.tensor,
    L: tl.constexpr,
    S: tl.constexpr,
    DEPTH: tl.constexpr,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Grid (R, programs of BLOCK columns)."""
    row = tl.program_id(0)
    keep = (row < tl.load(used)) & (tl.load(last + row) - row < DEPTH)
    mine = tl.load(slot + row)
    if keep & (mine >= 0) & (mine < S):
        place = clamped(tl.load(layer), L).to(tl.int64)
        j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        past = tl.maximum(tl.load(position + row), 0) % DEPTH
        value = tl.load(x + row.to(tl.int64) * N + j, mask=j < N)
        tl.store(new + ((place * S + mine) * DEPTH + past) * N + j, value, mask=j < N)


def write_ring(
    ring: jax.Array,
    x: jax.Array,
    layer: jax.Array,
    position: jax.Array,
    slot: jax.Array,
    last: jax.Array,
    used: jax.Array,
    read: jax.Array,
) -> jax.Array:
    """The ring [L, S, D, *shape] with rows x [R, *shape] put in, the last D of every segment.

    `read` is what was computed from the ring's old rows.
    """
    layers, slots, depth = ring.shape[:3]
    n = x.size // x.shape[0]
    block = min(COLUMNS, 1 << (n - 1).bit_length())
    arguments = (x, ring, layer, position, slot, last, used, read)
    return launch(
        write_rows,
        arguments,
        (Out(ring.shape, ring.dtype, alias=1),),
        (x.shape[0], -(-n // block)),
        {"L": layers, "S": slots, "DEPTH": depth, "N": n, "BLOCK": block},
        warps=4,
        stages=1,
    )[0]
