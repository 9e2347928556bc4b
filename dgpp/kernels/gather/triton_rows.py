"""Rows of a table, decoded, as a Triton kernel: the values that the formats publish."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.gpu.clamp import clamped
from dgpp.kernels.gpu.rounding import to_bf16
from dgpp.kernels.linear.triton_decode import E2M1, decode_pairs, e4m3
from dgpp.kernels.linear.triton_product import power_of

PLAIN = tl.constexpr(0)  # numbers
FP8 = tl.constexpr(1)  # E4M3 times a number
MXFP8 = tl.constexpr(2)  # E4M3 times 2^(b - 127) of each GROUP
NVFP4_TIMES = tl.constexpr(3)  # E2M1 times the E4M3 scale of each GROUP, which is multiplied by a number,
NVFP4_DIVIDED = tl.constexpr(4)  # or divided


@triton.jit
def table_rows(
    ids: tl.tensor,  # int32 [T]
    payload: tl.tensor,  # [LAYERS, N, K], or two codes a byte
    scale: tl.tensor,  # [LAYERS], or u8 [LAYERS, N, K / GROUP]
    total: tl.tensor,  # f32 [LAYERS], of NVFP4
    layer: tl.tensor,  # int32 scalar
    out: tl.tensor,  # f32 [T, K]
    LAYERS: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    KIND: tl.constexpr,
    GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Grid (T, ceil(K / BLOCK)). Numbers of rows that are not in the table are clamped."""
    t = tl.program_id(0)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = k < K
    place = clamped(tl.load(layer), LAYERS).to(tl.int64)
    row = place * N + clamped(tl.load(ids + t), N)
    if KIND == PLAIN:
        y = tl.load(payload + row * K + k, mask=there).to(tl.float32)
    else:
        if KIND >= NVFP4_TIMES:
            low, high = decode_pairs(tl.load(payload + row * (K // 2) + k // 2, mask=there, other=0), E2M1)
            x = tl.where(k % 2 == 0, low, high).to(tl.float32) * 64.0
            s = e4m3(tl.load(scale + row * (K // GROUP) + k // GROUP, mask=there, other=0)).to(tl.float32)
            number = tl.load(total + place)
            s = s * number if KIND == NVFP4_TIMES else tl.div_rn(s, tl.broadcast_to(number, (BLOCK,)))
        else:
            x = e4m3(tl.load(payload + row * K + k, mask=there, other=0)).to(tl.float32)
            if KIND == MXFP8:
                s = power_of(tl.load(scale + row * (K // GROUP) + k // GROUP, mask=there, other=0).to(tl.int32))
            else:
                s = tl.load(scale + place).to(tl.float32)
        y = to_bf16(x * s).to(tl.float32)
    tl.store(out + t.to(tl.int64) * K + k, y, mask=there)
