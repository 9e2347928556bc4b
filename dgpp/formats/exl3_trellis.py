"""The trellis of EXL3: tiles of 16 x 16 weights as circular bit streams, and the codebooks of their 16-bit states.

A tile at rate b has 256 positions and 256 * b bits, stored as 16 * b int16. Seen as little-endian 32-bit words, bits
run from the most significant down; so the 16-bit words of each pair are swapped. Position i adds d(i) new bits: b for a
whole rate; for a rate of m + 1/2, m at even and m + 1 at odd positions. Its state is the 16 bits that end after them,
around the end of the tile if need be. A codebook gives each state one float16 value:
- "3inst": x * 89226354 + 64248484 in 32 bits, masked with 0x8FFF8FFF, xor 0x3B603B60; the sum of both halves, each read
  as float16, rounded to float16.
- "mcg": x * 0xCBAC1FED, then the same mask, xor and sum.
- "mul1": x * 0x83DCD12D; fma(1024 + sum of the four bytes, 0x1EEE, 0xC931) in float16, rounded once.
Only a quarter of the values or fewer is exact in bfloat16.

Position i = 8 t + j of a tile is row (input) 2 (t & 3) + (j & 1) + 8 (j >> 1 & 1) and column (output)
(t >> 2) + 8 (j >> 2 & 1): the order of tensor-core fragments.
Source: exllamav3 1.6, modules/quant/exl3_lib/quantize.py and its CUDA codebooks.
"""

from __future__ import annotations

import functools

import numpy as np

from dgpp.formats.arrays import Array, bitcast, library, lookup

TILE = 16
POSITIONS = TILE * TILE
STATES = 1 << 16
MARKERS = {"mcg": 0xCBAC1FED, "mul1": 0x83DCD12D}
CODEBOOKS = ("3inst", "mcg", "mul1")

_T, _J = np.divmod(np.arange(POSITIONS), 8)
ROW = 2 * (_T & 3) + (_J & 1) + 8 * ((_J >> 1) & 1)
COLUMN = (_T >> 2) + 8 * ((_J >> 2) & 1)
POSITION = np.argsort(ROW * TILE + COLUMN)
"""The position of the element (row, column), row-major."""


@functools.cache
def new_bits(rate: float) -> np.ndarray:
    """d(i): the bits that each of the 256 positions adds."""
    whole = int(rate)
    bits = np.full(POSITIONS, whole)
    if rate != whole:
        bits[1::2] += 1
    return bits


@functools.cache
def codebook(name: str) -> np.ndarray:
    """float32 [65536]: the float16 value of every state."""
    state = np.arange(STATES, dtype=np.uint64)
    if name == "mul1":
        product = state * MARKERS["mul1"]
        total = sum((product >> np.uint64(shift)) & np.uint64(0xFF) for shift in (0, 8, 16, 24))
        factor, offset = np.array([0x1EEE, 0xC931], np.uint16).view(np.float16).astype(np.float64)
        exact = (1024 + np.asarray(total, np.float64)) * factor + offset
        return exact.astype(np.float16).astype(np.float32)
    product = state * 89226354 + 64248484 if name == "3inst" else state * MARKERS["mcg"]
    halves = ((product & np.uint64(0x8FFF8FFF)) ^ np.uint64(0x3B603B60)).astype(np.uint32)
    low, high = (part.astype(np.uint16).view(np.float16).astype(np.float32) for part in (halves & 0xFFFF, halves >> 16))
    return (low + high).astype(np.float16).astype(np.float32)


def states(trellis: Array, rate: float) -> Array:
    """The states uint16 [..., 256] of tiles int16 [..., 16 * rate], by position."""
    lib = library(trellis)
    words = trellis.shape[-1]
    stream = bitcast(trellis, np.uint16)[..., np.arange(words) ^ 1].astype(np.uint32)
    start = (np.cumsum(new_bits(rate)) - 16) % (16 * words)
    word, offset = start // 16, start % 16
    pair = (stream[..., word] << 16) | stream[..., (word + 1) % words]
    return (pair >> lib.asarray(16 - offset, np.uint32)).astype(np.uint16)


def pack_symbols(symbols: np.ndarray, rate: float) -> np.ndarray:
    """Tiles int16 [..., 16 * rate] of the new bits of every position, uint16 [..., 256]."""
    bits = new_bits(rate)
    width = int(bits.max())
    split = (symbols[..., None].astype(np.uint32) >> np.arange(width - 1, -1, -1, dtype=np.uint32)) & 1
    kept = np.arange(width)[None, :] >= width - bits[:, None]
    stream = split[..., kept].astype(np.uint8)
    words = np.ascontiguousarray(np.packbits(stream, axis=-1)).view(">u2").astype(np.uint16)
    return np.ascontiguousarray(words[..., np.arange(words.shape[-1]) ^ 1]).view(np.int16)


def tile_values(trellis: Array, rate: float, book: str) -> Array:
    """The float32 values [..., 16, 16] (row, column) of tiles int16 [..., 16 * rate]."""
    values = lookup(codebook(book), states(trellis, rate)[..., POSITION])
    return values.reshape(*values.shape[:-1], TILE, TILE)
