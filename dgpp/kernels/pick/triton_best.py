"""The largest keys of a chunk as a Triton kernel. A key orders as (logit, then lower id) do, in one signed integer."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.pick import WIDTH

_WIDTH = tl.constexpr(WIDTH)
_LEAST = tl.constexpr(-(1 << 63))


@triton.jit
def best_of_chunk(
    high: tl.tensor,  # int32 [B, N]: the bits of the logits where FIRST, else the keys' upper halves
    low: tl.tensor,  # int32 [B, N]: the ids; not read where FIRST
    best_high: tl.tensor,  # int32 [B, chunks, WIDTH], likewise best_low
    best_low: tl.tensor,
    N: tl.constexpr,
    CHUNKS: tl.constexpr,
    SPAN: tl.constexpr,  # a power of two, more than WIDTH: what one program looks at
    FIRST: tl.constexpr,
) -> None:
    """Grid (B, chunks): the WIDTH largest of SPAN keys, in descending order."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    at = chunk * SPAN + tl.arange(0, SPAN)
    inside = at < N
    word = tl.load(high + row * N + at, mask=inside, other=0)
    if FIRST:
        id = at
        magnitude = word & 0x7FFFFFFF
        word = tl.where(magnitude == 0, 0, word)  # 0 equals -0
        word = tl.where(word < 0, word ^ 0x7FFFFFFF, word)  # in the order of the numbers
        word = tl.where(magnitude > 0x7F800000, 0x7FFFFFFF, word)
    else:
        id = tl.load(low + row * N + at, mask=inside, other=0)
    key = (word.to(tl.int64) << 32) | (0x7FFFFFFF - id).to(tl.int64)
    key = tl.topk(tl.where(inside, key, _LEAST), _WIDTH)
    out = (row * CHUNKS + chunk) * _WIDTH + tl.arange(0, _WIDTH)
    tl.store(best_high + out, (key >> 32).to(tl.int32))
    tl.store(best_low + out, 0x7FFFFFFF - (key & 0x7FFFFFFF).to(tl.int32))
