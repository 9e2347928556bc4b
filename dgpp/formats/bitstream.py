"""Codes of 1, 2, 3, 4, 6 or 8 bits packed densely, lowest bits first.

Code i of a row is bits [i*b, (i+1)*b) of it. The row is a little-endian stream, whatever the word size it is stored in:
4-bit codes are "low nibble first", and 3- and 6-bit codes cross byte and word borders.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dgpp.formats.arrays import Array, as_bytes, library


def unpack(words: Array, bits: int, count: int) -> Array:
    """The first `count` codes of rows of integers [..., W] of any word size: uint8 [..., count].

    Rows of 3- and 6-bit codes must have a multiple of 3 bytes.
    """
    data = as_bytes(words)
    if bits == 8:
        return data[..., :count]
    lib = library(data)
    bunch = math.lcm(bits, 8) // 8  # bytes that hold a whole number of codes
    groups = data.reshape(*data.shape[:-1], -1, bunch).astype(np.uint32)
    joined = groups[..., 0]
    for i in range(1, bunch):
        joined = joined | (groups[..., i] << (8 * i))
    codes = [(joined >> shift) & ((1 << bits) - 1) for shift in range(0, 8 * bunch, bits)]
    return lib.stack(codes, -1).reshape(*data.shape[:-1], -1)[..., :count].astype(np.uint8)


def pack(codes: np.ndarray, bits: int, word: Any = np.uint8) -> np.ndarray:
    """Rows of codes [..., K] as integers `word` [..., ceil(K * bits / word bits)]; the tail is zero bits."""
    word = np.dtype(word)
    split = np.unpackbits(codes.astype(np.uint8)[..., None], axis=-1, count=bits, bitorder="little")
    stream = split.reshape(*codes.shape[:-1], -1)
    fill = -stream.shape[-1] % (8 * word.itemsize)
    stream = np.pad(stream, [(0, 0)] * (stream.ndim - 1) + [(0, fill)])
    return np.ascontiguousarray(np.packbits(stream, axis=-1, bitorder="little")).view(word)
