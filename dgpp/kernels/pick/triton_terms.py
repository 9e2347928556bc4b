"""Sums of e^x over chunks of a vocabulary as a Triton kernel: the bits of `dgpp.engine.sampler.normaliser`."""

from __future__ import annotations

import triton
import triton.language as tl

from dgpp.kernels.pick import CHUNK, exponential

DEEPEST = -690.0
"""Below it a term counts as 0: the sum of all is at least 1, so what is smaller than 2^-990 never reaches its bits."""

_CHUNK = tl.constexpr(CHUNK)
_LEVELS = tl.constexpr(CHUNK.bit_length() - 1)
_LARGEST = tl.constexpr((2 - 2.0**-23) * 2.0**127)
_DEEPEST = tl.constexpr(DEEPEST)
_INVERSE_LN2 = tl.constexpr(exponential.INVERSE_LN2)
_LN2_HIGH = tl.constexpr(exponential.LN2_HIGH)
_LN2_LOW = tl.constexpr(exponential.LN2_LOW)
_SHIFT = tl.constexpr(exponential.SHIFT)
_TAYLOR = tl.constexpr(exponential.TAYLOR)


@triton.jit
def f64(x: tl.constexpr, like: tl.tensor) -> tl.tensor:
    """The number x in float64, in the shape of `like`; a bare literal would be rounded to float32 first."""
    return tl.full(like.shape, x, tl.float64)


@triton.jit
def term(x: tl.tensor) -> tl.tensor:
    """e^x of float64 x <= 0 by `dgpp.engine.sampler.det_math.exp`; 0 below DEEPEST."""
    cut = tl.where(x < f64(_DEEPEST, x), f64(_DEEPEST, x), x)
    k = (cut * f64(_INVERSE_LN2, x) + f64(_SHIFT, x)) - f64(_SHIFT, x)
    r = tl.fma(-k, f64(_LN2_LOW, x), tl.fma(-k, f64(_LN2_HIGH, x), cut))
    p = f64(_TAYLOR[13], x)
    for i in tl.static_range(13):
        p = tl.fma(p, r, f64(_TAYLOR[12 - i], x))
    power = ((k.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)
    return tl.where(x < f64(_DEEPEST, x), f64(0.0, x), p * power)


@triton.jit
def scaled(x: tl.tensor, temperature: tl.tensor) -> tl.tensor:
    """float32 x / temperature, correctly rounded; finite quotients beyond float32 become its largest number."""
    y = tl.div_rn(x, tl.broadcast_to(temperature, x.shape))
    bounded = tl.minimum(tl.maximum(y, -_LARGEST), _LARGEST)
    return tl.where(x == -float("inf"), x, bounded)


@triton.jit
def chunk_terms(
    logits: tl.tensor,  # f32 [B, V]
    temperature: tl.tensor,  # f32 [B]
    peaks: tl.tensor,  # f32 [B, SLICES]: the largest logit of each slice
    bounds: tl.tensor,  # int32 [SLICES, 2]: where a slice starts and ends
    partials: tl.tensor,  # int32 [B, SLICES, CHUNKS, 2], float64 in two words
    V: tl.constexpr,
    SLICES: tl.constexpr,
    CHUNKS: tl.constexpr,
) -> None:
    """Grid (B, SLICES, CHUNKS): the halving tree of one chunk's terms."""
    row = tl.program_id(0)
    part = tl.program_id(1)
    chunk = tl.program_id(2)
    start = tl.load(bounds + 2 * part)
    end = tl.load(bounds + 2 * part + 1)
    at = start + chunk * _CHUNK + tl.arange(0, _CHUNK)
    x = tl.load(logits + row.to(tl.int64) * V + at, mask=at < end, other=-float("inf"))
    t = tl.load(temperature + row + tl.arange(0, 1))
    peak = tl.load(peaks + row * SLICES + part + tl.arange(0, 1))
    away = scaled(x, t).to(tl.float64) - tl.broadcast_to(scaled(peak, t).to(tl.float64), (_CHUNK,))
    absent = x == -float("inf")  # of an empty slice the peak is there too, and the difference is no number
    terms = tl.where(absent, f64(0.0, away), term(tl.where(absent, f64(0.0, away), away)))
    for i in tl.static_range(_LEVELS):
        terms = tl.sum(tl.reshape(terms, (2, _CHUNK >> (i + 1))), axis=0)  # of two
    words = tl.reshape(terms, (1,)).to(tl.int64, bitcast=True)
    out = partials + ((row * SLICES + part) * CHUNKS + chunk) * 2 + tl.arange(0, 1)
    tl.store(out, words.to(tl.int32))
    tl.store(out + 1, (words >> 32).to(tl.int32))
