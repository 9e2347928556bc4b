"""Products of rows with several matrices, as one Triton kernel: what shares a launch, and what a program takes of it.

The sums are those of `triton_product`; sharing a launch moves no addition.
"""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.clamp import clamped
from dgpp.kernels.gpu.rounding import to_bf16
from dgpp.kernels.linear.triton_decode import BF16, E4M3
from dgpp.kernels.linear.triton_product import NO_SCALE, NOTHING, TIMES_ROW, tile


@triton.jit
def moved(
    w: tl.tensor,
    scale: tl.tensor,
    last: tl.tensor,
    layer: tl.tensor,
    LAYERS: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    CODE: tl.constexpr,
    PLANES: tl.constexpr,
    SCALE_ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    LAST: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """(w, scale, last) where the matrix of the layer begins, an int32 scalar in memory that is clamped to LAYERS."""
    place = clamped(tl.load(layer), LAYERS).to(tl.int64)
    scale += place * (tl.cdiv(N, SCALE_ROWS) * COLUMNS)
    if LAST == TIMES_ROW:
        last += place * N
    elif LAST != NOTHING:
        last += place
    if CODE >= E4M3:
        w = w.to(tl.pointer_type(tl.uint8))  # whatever the width of the array's elements
    return w + place * N * (K // PLANES), scale, last


@triton.jit
def put(
    y: tl.tensor,  # [BN, BR]
    out: tl.tensor,  # f32 or bf16 [leaves, R, n_all]
    leaf: tl.tensor,
    first: tl.tensor,
    r: tl.tensor,
    n_all: tl.tensor,
    live: tl.tensor,  # rows from here on are zeros
    R: tl.constexpr,
    BN: tl.constexpr,
) -> None:
    """Stores the outputs of a tile from column `first` on."""
    y = tl.where(r[None, :] < live, y, 0.0)
    if out.dtype.element_ty == tl.bfloat16:
        y = to_bf16(y)
    inside = ((first + tl.arange(0, BN))[:, None] < n_all) & (r[None, :] < R)
    out_at = out + (leaf.to(tl.int64) * R + r[None, :]) * n_all + first + tl.arange(0, BN)[:, None]
    tl.store(out_at, y, mask=inside)


@triton.jit
def beside(
    x: tl.tensor,  # bf16 [R, K]
    absent: tl.tensor,
    w_0: tl.tensor,  # bf16 [layers, B, K]; the second is the first where there is one
    w_1: tl.tensor,
    bounds: tl.tensor,
    layer_0: tl.tensor,
    layer_1: tl.tensor,
    leaf: tl.tensor,
    column: tl.tensor,
    live: tl.tensor,
    out_0: tl.tensor,  # f32 [leaves, R, B]
    out_1: tl.tensor,
    B_0: tl.constexpr,
    B_1: tl.constexpr,  # 0: there is one
    LAYERS_0: tl.constexpr,
    LAYERS_1: tl.constexpr,
    K: tl.constexpr,
    R: tl.constexpr,
    LENGTH: tl.constexpr,
    ALIGN: tl.constexpr,
    TAIL: tl.constexpr,
    STAGES: tl.constexpr,
    BN: tl.constexpr,
    BR: tl.constexpr,
    BK: tl.constexpr,
    ASM: tl.constexpr,
) -> None:
    """A tile of one of two small matrices of bfloat16, with the bits that it has in a launch of its own."""
    w, scale, last = moved(w_0, absent, absent, layer_0, LAYERS_0, B_0, K, BF16, 1, 1, 1, NOTHING)
    out = out_0
    n_all = B_0
    if B_1:  # noqa: SIM102 - known while compiling, unlike the next
        if column >= tl.cdiv(B_0, BN):
            w, scale, last = moved(w_1, absent, absent, layer_1, LAYERS_1, B_1, K, BF16, 1, 1, 1, NOTHING)
            out = out_1
            n_all = B_1
            column -= tl.cdiv(B_0, BN)
    first = column * BN
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    n = tl.minimum(tl.arange(0, BN), n_all - 1 - first)
    y = tile(
        x, absent, w, scale, last, bounds, leaf, leaf.to(tl.int64) * 0, first, n, r, r < live,
        tl.program_id(0) * BR < live, 1, K, R, BR, K, LENGTH, ALIGN, TAIL, BF16, 1, NO_SCALE, 1, 1, 1, NOTHING,
        0, 1, 1, STAGES, BN, BR, BK, ASM,
    )  # fmt: skip
    put(y, out, leaf, first, r, n_all, live, R, BN)


@triton.jit
def product(
    x: tl.tensor,  # this and the next as in `tile`
    factor: tl.tensor,
    w_0: tl.tensor,  # as in `tile`, with layers as places; MATRICES of them, and the first again for those that lack
    w_1: tl.tensor,
    w_2: tl.tensor,
    w_3: tl.tensor,
    scale_0: tl.tensor,
    scale_1: tl.tensor,
    scale_2: tl.tensor,
    scale_3: tl.tensor,
    last_0: tl.tensor,
    last_1: tl.tensor,
    last_2: tl.tensor,
    last_3: tl.tensor,
    bounds: tl.tensor,
    layer_0: tl.tensor,  # int32 scalars
    layer_1: tl.tensor,
    layer_2: tl.tensor,
    layer_3: tl.tensor,
    used: tl.tensor,
    plain: tl.tensor,  # bf16 [R, K], and what else `beside` takes
    beside_0: tl.tensor,
    beside_1: tl.tensor,
    beside_layer_0: tl.tensor,
    beside_layer_1: tl.tensor,
    out_0: tl.tensor,  # f32 or bf16 [leaves, R, N_0], ...
    out_1: tl.tensor,
    out_2: tl.tensor,
    out_3: tl.tensor,
    beside_out_0: tl.tensor,
    beside_out_1: tl.tensor,
    B_0: tl.constexpr,  # outputs of the matrices beside; 0: there are none
    B_1: tl.constexpr,
    BESIDE_LAYERS_0: tl.constexpr,
    BESIDE_LAYERS_1: tl.constexpr,
    BESIDE_BK: tl.constexpr,
    BESIDE_TAIL: tl.constexpr,
    MATRICES: tl.constexpr,
    N_0: tl.constexpr,
    N_1: tl.constexpr,
    N_2: tl.constexpr,
    N_3: tl.constexpr,
    LAYERS_0: tl.constexpr,
    LAYERS_1: tl.constexpr,
    LAYERS_2: tl.constexpr,
    LAYERS_3: tl.constexpr,
    EVEN: tl.constexpr,  # a power of two that divides every N
    K: tl.constexpr,  # this and the others as in `tile`
    R: tl.constexpr,
    RPAD: tl.constexpr,
    PADDED: tl.constexpr,
    LENGTH: tl.constexpr,
    ALIGN: tl.constexpr,
    TAIL: tl.constexpr,
    CODE: tl.constexpr,
    PLANES: tl.constexpr,
    SCALE: tl.constexpr,
    SCALE_ROWS: tl.constexpr,
    SCALE_WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    LAST: tl.constexpr,
    UNIT: tl.constexpr,
    RUN: tl.constexpr,
    COUNT: tl.constexpr,
    STAGES: tl.constexpr,
    BN: tl.constexpr,
    BR: tl.constexpr,
    BK: tl.constexpr,
    ASM: tl.constexpr,
) -> None:
    """Grid (row tiles, column tiles of the matrices beside and of one matrix after the other, leaves); the tile of rows
    is the fastest, so that its weights stay in L2."""
    leaf = tl.program_id(2)
    column = tl.program_id(1)
    live = tl.load(used)
    if B_0:
        FIRST: tl.constexpr = tl.cdiv(B_0, BN) + tl.cdiv(B_1, BN)
        if column < FIRST:
            beside(
                plain, factor, beside_0, beside_1, bounds, beside_layer_0, beside_layer_1, leaf, column, live,
                beside_out_0, beside_out_1, B_0, B_1, BESIDE_LAYERS_0, BESIDE_LAYERS_1, K, R, LENGTH, ALIGN,
                BESIDE_TAIL, STAGES, BN, BR, BESIDE_BK, ASM,
            )  # fmt: skip
            return
        column -= FIRST
    w, scale, last = moved(w_0, scale_0, last_0, layer_0, LAYERS_0, N_0, K, CODE, PLANES, SCALE_ROWS, COLUMNS, LAST)
    out = out_0
    n_all = N_0
    if MATRICES > 1:
        first_1: tl.constexpr = tl.cdiv(N_0, BN)
        first_2: tl.constexpr = first_1 + tl.cdiv(N_1, BN)
        first_3: tl.constexpr = first_2 + tl.cdiv(N_2, BN)
        begin = 0
        if column >= first_1:
            w, scale, last = moved(
                w_1, scale_1, last_1, layer_1, LAYERS_1, N_1, K, CODE, PLANES, SCALE_ROWS, COLUMNS, LAST
            )
            out = out_1
            n_all = N_1
            begin = first_1
        if MATRICES > 2:  # noqa: SIM102 - known while compiling, unlike the next
            if column >= first_2:
                w, scale, last = moved(
                    w_2, scale_2, last_2, layer_2, LAYERS_2, N_2, K, CODE, PLANES, SCALE_ROWS, COLUMNS, LAST
                )
                out = out_2
                n_all = N_2
                begin = first_2
        if MATRICES > 3:  # noqa: SIM102
            if column >= first_3:
                w, scale, last = moved(
                    w_3, scale_3, last_3, layer_3, LAYERS_3, N_3, K, CODE, PLANES, SCALE_ROWS, COLUMNS, LAST
                )
                out = out_3
                n_all = N_3
                begin = first_3
        column -= begin
        n_all = tl.multiple_of(n_all, EVEN)
    first = column * BN
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    n = tl.minimum(tl.arange(0, BN), n_all - 1 - first)
    here = leaf.to(tl.int64) * 0  # the matrix begins at w
    y = tile(
        x, factor, w, scale, last, bounds, leaf, here, first, n, r, r < live, tl.program_id(0) * BR < live,
        1, K, R, RPAD, PADDED, LENGTH, ALIGN, TAIL, CODE, PLANES, SCALE, SCALE_ROWS, SCALE_WIDTH, COLUMNS, LAST,
        UNIT, RUN, COUNT, STAGES, BN, BR, BK, ASM,
    )  # fmt: skip
    put(y, out, leaf, first, r, n_all, live, R, BN)
