"""EXL3: trellis-coded tiles between two Hadamard transforms (exllamav3).

Layout (K-first, K the input): `trellis` I16 [K/16, N/16, 16 * rate]; `suh` F16 [K] and `svh` F16 [N], scales with
signs; legacy ".su" and ".sv" I16 [K/16] and [N/16] hold signs only, bit i of word w for element 16 w + i, set = -1. The
codebook is told by a scalar I32 tensor ".mcg" or ".mul1", absent for "3inst". Rates 1 to 8, and 1.5, 2.5, 3.5 with
mul1; N and K are multiples of 128. See `dgpp.formats.exl3_trellis` for the tiles.
Value: W = diag(svh) H Q^T H diag(suh), transposed here to [N, K], with Q the float16 tile values and H block-diagonal
H128 / sqrt(128); `decode` computes it in float64 and rounds once.

Kernel: the operand is Q^T, exact in f16 and not in bf16. Activations become f16(butterflies(f16(x * suh)) * c) with
c = fl32(1 / sqrt(128)); the sums become fl32(fl32(butterflies(y) * c) * svh). rate / 8 + 2/N + 2/K bytes per weight.

Encoder: scales from the weight's own size, fixed pseudo-random signs, and a beam search over the trellis.
Slice rule: rows and columns on 128. Padding sets suh or svh to 0, so the legacy form has none.
Source: exllamav3 1.6, modules/quant/exl3.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgpp.formats.arrays import Array, as_bytes, library, settled
from dgpp.formats.base import Activations, Along, Arrays, PackedArray, Shape
from dgpp.formats.bitstream import pack
from dgpp.formats.exl3_search import BEAM, search
from dgpp.formats.exl3_trellis import COLUMN, MARKERS, ROW, TILE, codebook, pack_symbols, tile_values
from dgpp.formats.hadamard import SCALE_128, butterflies, orthonormal64
from dgpp.formats.matrix import MatrixFormat
from dgpp.formats.minifloat import to_float16

SPAN = 128


@dataclass(frozen=True)
class EXL3(MatrixFormat):
    """EXL3 at `rate` bits per weight with codebook `book`; `legacy` stores signs instead of scales."""

    rate: float
    book: str = "mul1"
    legacy: bool = False

    exact_in = ("f16",)
    slice_rule = "rows and columns on 128"

    @property
    def name(self) -> str:
        """E.g. "exl3_3.5_mul1", "exl3_4_3inst_su"."""
        return f"exl3_{self.rate:g}_{self.book}" + ("_su" if self.legacy else "")

    def fields(self, n: int, k: int) -> dict[str, PackedArray]:
        """`trellis`, the scales of both sides, and the codebook's marker. N and K must be multiples of 128."""
        if n % SPAN or k % SPAN:
            raise ValueError(f"{self.name}: N = {n} and K = {k} must be multiples of {SPAN}")
        i16, tiles = np.dtype(np.int16), (k // TILE, n // TILE)
        dims = (Along(1, TILE), Along(0, TILE), None)
        out = {"trellis": PackedArray("trellis", "I16", i16, (*tiles, round(TILE * self.rate)), dims)}
        if self.legacy:
            out["su"] = PackedArray("su", "I16", i16, tiles[:1], dims[:1])
            out["sv"] = PackedArray("sv", "I16", i16, tiles[1:], dims[1:2])
        else:
            f16 = np.dtype(np.float16)
            out["suh"] = PackedArray("suh", "F16", f16, (k,), (Along(1),))
            out["svh"] = PackedArray("svh", "F16", f16, (n,), (Along(0),))
        if self.book in MARKERS:
            out["marker"] = PackedArray(self.book, "I32", np.dtype(np.int32), (), resident=False)
        return out

    def unit(self, axis: int) -> int:
        """A Hadamard block."""
        return SPAN

    def pad(self, arrays: Arrays, shape: Shape, axis: int, size: int) -> dict[str, np.ndarray]:
        """Scales of 0 appended; signs alone cannot be 0."""
        if self.legacy and size > shape[axis]:
            raise ValueError(f"{self.name}: cannot be padded, since signs cannot make a weight zero")
        return super().pad(arrays, shape, axis, size)

    def matrix_decode(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """The values, rounded once."""
        return self.matrix_decode64(arrays, n, k).astype(np.float32)

    def matrix_decode64(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """The values, to about 1e-15 of the largest of each block."""
        turned = orthonormal64(orthonormal64(self.operand(arrays, (n, k)), SPAN, 1), SPAN, 0)
        suh, svh = self._scale(arrays, "u"), self._scale(arrays, "v")
        return turned * svh.astype(np.float64)[:, None] * suh.astype(np.float64)

    def matrix_encode(self, values: np.ndarray, beam: int = BEAM) -> dict[str, np.ndarray]:
        """A search with `beam` paths for the rotated, scaled weight; `legacy` cannot scale it."""
        n, k = values.shape
        signs = [_signs(size) for size in (k, n)]
        out: dict[str, np.ndarray] = {}
        if self.legacy:
            out["su"], out["sv"] = (pack(sign < 0, 1, np.int16) for sign in signs)
        else:
            spread = np.std(codebook(self.book))
            rms = np.sqrt(np.mean(np.square(values, dtype=np.float64), axis=1))
            typical = np.sqrt(np.mean(rms**2))
            out["suh"] = (signs[0] * (typical / spread)).astype(np.float16)
            out["svh"] = (signs[1] * (rms / typical if typical else rms)).astype(np.float16)
        suh, svh = (self._scale(out, side).astype(np.float64) for side in "uv")
        scale = svh[:, None] * suh
        wanted = np.where(scale == 0, 0, values / np.where(scale == 0, 1, scale))
        turned = orthonormal64(orthonormal64(wanted, SPAN, 1), SPAN, 0).T
        tiles = turned.reshape(k // TILE, TILE, n // TILE, TILE).swapaxes(1, 2)
        targets = tiles[:, :, ROW, COLUMN].reshape(-1, TILE * TILE).astype(np.float32)
        symbols = search(targets, self.rate, self.book, beam).reshape(k // TILE, n // TILE, -1)
        out = {"trellis": pack_symbols(symbols, self.rate), **out}
        if self.book in MARKERS:
            out["marker"] = np.array(MARKERS[self.book], np.uint32).view(np.int32)
        return out

    def operand(self, block: Arrays, shape: Shape) -> Array:
        """Q^T."""
        tiles = tile_values(block["trellis"], self.rate, self.book)
        k_tiles, n_tiles = tiles.shape[:2]
        return tiles.transpose(1, 3, 0, 2).reshape(n_tiles * TILE, k_tiles * TILE)

    def prepare(self, x: Array, arrays: Arrays, shape: Shape) -> Activations:
        """The scaled and rotated rows, float16 values."""
        scaled = to_float16(x.astype(np.float32) * self._scale(arrays, "u"))
        return Activations(to_float16(butterflies(scaled, SPAN) * SCALE_128))

    def epilogue(self, y: Array, arrays: Arrays, shape: Shape) -> Array:
        """The rotated and scaled sums."""
        return settled(butterflies(y, SPAN) * SCALE_128) * self._scale(arrays, "v")

    def _scale(self, arrays: Arrays, side: str) -> Array:
        """float32: the scales of the inputs ("u") or the outputs ("v")."""
        if not self.legacy:
            return arrays[f"s{side}h"].astype(np.float32)
        lib = library(arrays[f"s{side}"])
        data = as_bytes(arrays[f"s{side}"])
        bits = (data[:, None] >> lib.arange(8, dtype=np.uint8)) & 1
        return 1 - 2 * bits.reshape(-1).astype(np.float32)


def _signs(size: int) -> np.ndarray:
    """+1 or -1 for every channel: raw bits of a generator that NumPy keeps stable."""
    return 1.0 - 2.0 * (np.random.PCG64(size).random_raw(size) >> np.uint64(63)).astype(np.float64)
