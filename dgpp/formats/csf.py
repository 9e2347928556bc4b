"""CSF: the lossless code of a plane of scale bytes, whose neighbours in a row differ little.

A plane S uint8 [R, C], R a multiple of 16, is stored as slabs of 16 rows and a list of exceptions:
- a slab is 16 base bytes, then 16 rows of offsets, `bits` each, packed lowest bits first: S[r, c] = base[r] + offset;
- an exception is a uint32: the flat position r * C + c in its low 24 bits, the byte S[r, c] in its high 8. Positions
  ascend strictly; the offset under an exception is 0.
Offsets have 4 bits for the E4M3 scales of NVFP4 (C even) and 1 bit for the E8M0 scales of MXFP4. Expanding restores
every byte. The encoder takes the lowest base whose window covers most of the row.
Source: flashinfer-python 0.7.4 quantization/csf.py; vllm fork of local-inference-lab, nvfp4_csf_loader.py, codec id
"byte-window4-fixed-stream-u24-exceptions/1".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dgpp.formats.arrays import Array, library
from dgpp.formats.bitstream import pack, unpack

SLAB = 16
MOST = 1 << 24


def slab_bytes(columns: int, bits: int) -> int:
    """Bytes of one slab of a plane with `columns` columns."""
    return SLAB * (1 + -(-columns * bits // 8))


def encode(plane: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """(slabs uint8 [R/16, slab bytes], exceptions uint32 [n]) of a plane. Raises ValueError for a wrong R or size."""
    rows, columns = plane.shape
    if rows % SLAB or rows * columns > MOST:
        raise ValueError(f"csf: a plane has a multiple of {SLAB} rows and at most 2^24 bytes, not {rows} x {columns}")
    window = 1 << bits
    counts = np.zeros((rows, 257), np.int64)
    np.add.at(counts, (np.arange(rows)[:, None], plane.astype(np.int64) + 1), 1)
    below = counts.cumsum(1)
    base = (below[:, window:] - below[:, :-window]).argmax(1)  # the first of the best
    offset = plane.astype(np.int64) - base[:, None]
    outside = (offset < 0) | (offset >= window)
    packed = pack(np.where(outside, 0, offset), bits).reshape(rows // SLAB, -1)
    slabs = np.concatenate([base.astype(np.uint8).reshape(-1, SLAB), packed], axis=1)
    position = np.flatnonzero(outside)
    return slabs, (plane.reshape(-1)[position].astype(np.uint32) << 24) | position.astype(np.uint32)


def check(exceptions: np.ndarray, rows: int, columns: int) -> None:
    """Raises ValueError when the exceptions do not ascend or lie outside a plane [rows, columns]."""
    position = (exceptions & (MOST - 1)).astype(np.int64)
    if (np.diff(position) <= 0).any():
        raise ValueError("csf: the exceptions do not ascend by position")
    if position.size and position[-1] >= rows * columns:
        raise ValueError(f"csf: exception at {position[-1]} lies outside the plane of {rows} x {columns} bytes")


def expand(slabs: Array, exceptions: Array, columns: int, bits: int, first: Any = 0) -> Array:
    """The bytes uint8 [16 * S, C] of slabs [S, slab bytes] whose first row is row `first` of the whole plane."""
    lib = library(slabs)
    rows = slabs.shape[0] * SLAB
    base = slabs[:, :SLAB].reshape(rows, 1)
    stream = slabs[:, SLAB:].reshape(rows, -1)
    plane = (base + unpack(stream, bits, columns)).astype(np.uint8).reshape(-1)
    position = (exceptions & (MOST - 1)).astype(np.int32) - first * columns
    inside = (position >= 0) & (position < rows * columns)
    value = (exceptions >> 24).astype(np.uint8)
    if lib is np:
        plane[position[inside]] = value[inside]
    else:
        plane = plane.at[lib.where(inside, position, rows * columns)].set(value, mode="drop")
    return plane.reshape(rows, columns)
