"""BF12: bfloat16 without loss in 12 bits, for matrices whose exponents in a row lie close together.

A resident form, made from BF16 at load; no checkpoint has it. K is a multiple of 1024, at most 65536. Per row, e0 (0 to
241) is the lowest start of the 15 exponents e0 to e0 + 14 that cover most of its weights. A weight is its sign and
mantissa byte and the 4-bit code exponent - e0; code 15 is an escape. A row with more than 64 escapes is kept raw.

Layout:
- `packed` U8 [N, K * 3/2]: K/1024 super-blocks of 1536 bytes = A 512 | B 512 | E 512. For column c, with
  t = c % 1024 // 256, lane = c % 256 // 8 and j = c % 8, the byte is in A (t < 2) or B at 16 lane + 8 (t & 1) + j, the
  code in E at nibble 32 lane + 8 t + j, low nibble first. So one lane of a warp reads 16 bytes of each for 32 weights.
- `rows` U32 [2 (N + 1)]: per row the index of its first escape, and e0 << 23, or 0x80000000 + index for a raw row; at
  the end the number of escapes, and 0.
- `escapes` U32 [any]: column << 16 | bf16 bits, ascending in a row; the packed byte of an escape is written as well.
- `raw` BF16 [any, K]. The packed bytes of a raw row are 0.
Values are those of BF16, bit for bit, NaN and infinity included; exact in bf16. 1.5 bytes per weight, 8 per row, 4 per
escape, 2 K per raw row: worth it while at most 1 row in 8 is raw (`worthwhile`).
Slice rule: rows anywhere, columns on 1024; the slice is encoded anew from its bf16 values.
Source: AhmmedSamier/dgpp src/kernels/bf12_gemv.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dgpp.formats.arrays import Array, at, bitcast, block, library, stacked
from dgpp.formats.base import ANY, Along, Arrays, PackedArray, Shape
from dgpp.formats.bf16 import BF16
from dgpp.formats.matrix import MatrixFormat
from dgpp.formats.minifloat import BFLOAT16

SUPER = 1024
MOST_COLUMNS = 65536
WINDOW = 15
ESCAPE = 15
MOST_ESCAPES = 64
RAW = 0x80000000


@dataclass(frozen=True)
class BF12(MatrixFormat):
    """The BF12 format."""

    name = "bf12"
    exact_in = ("bf16",)
    slice_rule = "rows anywhere, columns on 1024"

    def fields(self, n: int, k: int) -> dict[str, PackedArray]:
        """`packed`, `rows`, `escapes` and `raw`. K must be a multiple of 1024, at most 65536."""
        if k % SUPER or k > MOST_COLUMNS:
            raise ValueError(f"{self.name}: K = {k} is not a multiple of {SUPER} up to {MOST_COLUMNS}")
        u32 = np.dtype(np.uint32)
        block_bytes = Along(1, SUPER, SUPER * 3 // 2)
        return {
            "packed": PackedArray("packed", "U8", np.dtype(np.uint8), (n, k * 3 // 2), (Along(0), block_bytes)),
            "rows": PackedArray("rows", "U32", u32, (2 * (n + 1),), (None,)),
            "escapes": PackedArray("escapes", "U32", u32, (ANY,), (None,)),
            "raw": PackedArray("raw", "BF16", BFLOAT16, (ANY, k), (None, Along(1, SUPER, SUPER))),
        }

    def worthwhile(self, arrays: Arrays, shape: Shape) -> bool:
        """Whether at most one row in eight is raw; otherwise plain BF16 is the better form."""
        return arrays["raw"].shape[-2] * 8 <= shape[-2]

    def matrix_decode(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """The bf16 values: exact."""
        return np.asarray(self.operand(self.rows(arrays, (n, k), 0, n), (n, k)))

    def matrix_decode64(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """The bf16 values: exact."""
        return self.matrix_decode(arrays, n, k).astype(np.float64)

    def encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The values rounded to bf16, then coded without loss, whatever they are."""
        return self.from_bf16(np.asarray(values, np.float32).astype(BFLOAT16))

    def matrix_encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The same for one matrix."""
        return self.from_bf16(values.astype(BFLOAT16))

    def from_bf16(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The arrays of bfloat16 values [..., N, K], which decode to the same bits.

        In a stack all lists of escapes and of raw rows are as long as the longest; no row refers to what is appended.
        """
        if values.ndim > 2:
            parts = [self.from_bf16(part) for part in values]
            return {name: stacked([part[name] for part in parts]) for name in parts[0]}
        n, k = values.shape
        self.fields(n, k)
        bits = np.ascontiguousarray(values).view(np.uint16)
        exponent = ((bits >> 7) & 0xFF).astype(np.int64)
        base = _window_start(exponent)
        code = exponent - base[:, None]
        outside = (code < 0) | (code >= WINDOW)
        raw = outside.sum(1) > MOST_ESCAPES
        code = np.where(outside, ESCAPE, code).astype(np.uint8)
        byte = (((bits >> 8) & 0x80) | (bits & 0x7F)).astype(np.uint8)
        packed = _interleave(byte, code)
        packed[raw] = 0
        outside[raw] = False
        row, column = np.nonzero(outside)
        first = np.searchsorted(row, np.arange(n + 1))
        word = np.where(raw, RAW + np.cumsum(raw) - 1, base << 23)
        return {
            "packed": packed,
            "rows": np.stack([first, np.append(word, 0)], 1).reshape(-1).astype(np.uint32),
            "escapes": (column.astype(np.uint32) << 16) | bits[row, column],
            "raw": np.ascontiguousarray(values[raw]),
        }

    def slice(self, arrays: Arrays, shape: Shape, axis: int, start: int, stop: int) -> dict[str, np.ndarray]:
        """The slice of the bf16 values, encoded anew."""
        self._check_cuts(shape, axis, (start, stop))
        return self.from_bf16(BF16().slice(self._plain(arrays, shape), shape, axis, start, stop)["values"])

    def pad(self, arrays: Arrays, shape: Shape, axis: int, size: int) -> dict[str, np.ndarray]:
        """The bf16 values padded and encoded anew."""
        return self.from_bf16(BF16().pad(self._plain(arrays, shape), shape, axis, size)["values"])

    def concatenate(self, parts: Sequence[Arrays], shapes: Sequence[Shape], axis: int) -> dict[str, np.ndarray]:
        """The bf16 values joined and encoded anew."""
        plain = [self._plain(*part) for part in zip(parts, shapes, strict=True)]
        return self.from_bf16(BF16().concatenate(plain, shapes, axis)["values"])

    def unit(self, axis: int) -> int:
        """Rows one by one, columns in super-blocks."""
        return (1, SUPER)[axis]

    def rows(self, arrays: Arrays, shape: Shape, start: Array, count: int, lead: Sequence[Array] = ()) -> Arrays:
        """`packed` and `rows` of these rows; `escapes` and `raw` whole."""
        return {
            "packed": block(arrays["packed"], lead, 0, start, count),
            "rows": block(arrays["rows"], lead, 0, 2 * start, 2 * (count + 1)),
            "escapes": at(arrays["escapes"], lead),
            "raw": at(arrays["raw"], lead),
        }

    def operand(self, block: Arrays, shape: Shape) -> Array:
        """The bf16 values."""
        packed = block["packed"]
        lib = library(packed)
        count, k = packed.shape[0], shape[-1]
        first, word = block["rows"].reshape(-1, 2).T.astype(np.int64 if lib is np else np.uint32)
        byte, code = _separate(packed, k)
        exponent = (word[:-1, None] >> 23).astype(np.int32) + code.astype(np.int32)
        bits = ((byte.astype(np.int32) & 0x80) << 8) | (exponent << 7) | (byte.astype(np.int32) & 0x7F)
        bits = self._with_escapes(bits, first.astype(np.int32), block["escapes"])
        if block["raw"].shape[0]:
            index = lib.minimum((word[:-1] & 0x7FFFFFFF).astype(np.int32), block["raw"].shape[0] - 1)
            whole = bitcast(block["raw"][index], np.uint16).astype(np.int32)
            bits = lib.where((word[:-1] >= np.uint32(RAW))[:, None], whole, bits)
        assert bits.shape == (count, k)
        return bitcast(bits.astype(np.uint32) << 16, np.float32)

    def _with_escapes(self, bits: Array, first: Array, escapes: Array) -> Array:
        """The bits with every escape of the rows put in its column."""
        if not escapes.shape[0]:
            return bits
        lib = library(bits)
        count, k = bits.shape
        index = first[:-1, None] + np.arange(MOST_ESCAPES, dtype=np.int32)
        inside = index < first[1:, None]
        word = escapes[lib.minimum(index, escapes.shape[0] - 1)]
        column = (word >> 16).astype(np.int32)
        value = (word & 0xFFFF).astype(np.int32)
        row = lib.broadcast_to(np.arange(count, dtype=np.int32)[:, None], column.shape)
        if lib is np:
            bits = bits.copy()
            bits[row[inside], column[inside]] = value[inside]
            return bits
        return bits.at[row, lib.where(inside, column, k)].set(value, mode="drop")

    def _plain(self, arrays: Arrays, shape: Shape) -> dict[str, np.ndarray]:
        return {"values": self.decode(arrays, shape).astype(BFLOAT16)}


def _window_start(exponent: np.ndarray) -> np.ndarray:
    """int64 [N]: the lowest start of the window of 15 exponents that covers most of each row."""
    counts = np.stack([np.bincount(row, minlength=256) for row in exponent])
    below = np.concatenate([np.zeros((len(counts), 1), np.int64), counts.cumsum(1)], 1)
    return (below[:, WINDOW:] - below[:, :-WINDOW]).argmax(1)


def _interleave(byte: np.ndarray, code: np.ndarray) -> np.ndarray:
    """The packed rows of sign-and-mantissa bytes and exponent codes [N, K]."""
    n = byte.shape[0]
    # [N, super-block, t >> 1, t & 1, lane, j]
    bytes_ = byte.reshape(n, -1, 2, 2, 32, 8).transpose(0, 1, 2, 4, 3, 5).reshape(n, -1, 1024)
    codes = code.reshape(n, -1, 4, 32, 8).transpose(0, 1, 3, 2, 4).reshape(n, -1, 512, 2)
    nibbles = codes[..., 0] | (codes[..., 1] << 4)
    return np.concatenate([bytes_, nibbles], -1).reshape(n, -1)


def _separate(packed: Array, k: int) -> tuple[Array, Array]:
    """(bytes, codes) uint8 [C, K] of packed rows: the inverse of `_interleave`."""
    lib = library(packed)
    n = packed.shape[0]
    blocks = packed.reshape(n, -1, SUPER * 3 // 2)
    byte = blocks[..., :1024].reshape(n, -1, 2, 32, 2, 8).transpose(0, 1, 2, 4, 3, 5).reshape(n, k)
    nibbles = blocks[..., 1024:]
    codes = lib.stack([nibbles & 15, nibbles >> 4], -1).reshape(n, -1, 32, 4, 8)
    return byte, codes.transpose(0, 1, 3, 2, 4).reshape(n, k)
