"""Symmetric integers of 4 or 8 bits with one scale per group of K: compressed-tensors `pack-quantized`.

Layout: `codes` I32 [N, K * bits / 32] under ".weight_packed", a little-endian stream of u = q + 2^(bits-1); `scale`
BF16 [N, ceil(K / group)] under ".weight_scale"; ".weight_shape" I64 [2] = [N, K], checked and dropped. A tail group may
be short. The forms with F16 scales are what a GPTQ checkpoint becomes when it is loaded.
Value: q * scale, exact in float32 (at most 19 significant bits); the library rounds it to bf16. The operand is q, exact
in bf16 and f16; each group's finished sum is multiplied by its scale. int4 g64: 0.53125 bytes per weight, int8 1.03125.

Encoder: scale = amax / (2^(bits-1) - 0.5), i.e. / 7.5 or / 127.5, 0 for a zero group; q = rint(w / scale), clipped.
Slice rule: rows anywhere, columns on groups.
Source: compressed-tensors 0.20 compressors/pack_quantized.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgpp.formats.arrays import Array, divided
from dgpp.formats.base import Along, Arrays, PackedArray, Shape
from dgpp.formats.bitstream import pack, unpack
from dgpp.formats.dense import DTYPES
from dgpp.formats.matrix import MatrixFormat

ZEROS = {4: -0x77777778, 8: -0x7F7F7F80}
"""int32 words whose fields are all 2^(bits-1): weights of zero (0x88888888 and 0x80808080)."""


@dataclass(frozen=True)
class PackedInt(MatrixFormat):
    """Integers of `bits` (4 or 8) in groups of `group`, with `scale` BF16 or F16."""

    bits: int
    per_scale: int
    scale: str = "BF16"

    exact_in = ("bf16", "f16")

    @property
    def name(self) -> str:
        """E.g. "int4_g64", "int8_g128_f16"."""
        return f"int{self.bits}_g{self.per_scale}" + ("" if self.scale == "BF16" else f"_{self.scale.lower()}")

    @property
    def slice_rule(self) -> str:
        """Where it may be cut."""
        return f"rows anywhere, columns on {self.per_scale}"

    @property
    def group(self) -> int:
        """Elements under one scale."""
        return self.per_scale

    def fields(self, n: int, k: int) -> dict[str, PackedArray]:
        """`codes`, `scale` and the checked shape. A row must fill whole 32-bit words."""
        per_word = 32 // self.bits
        if k % per_word:
            raise ValueError(f"{self.name}: K = {k} is not a multiple of {per_word}, so rows end inside a word")
        groups = Along(1, self.per_scale)
        return {
            "codes": PackedArray(
                "weight_packed",
                "I32",
                np.dtype(np.int32),
                (n, k // per_word),
                (Along(0), Along(1, per_word)),
                ZEROS[self.bits],
            ),
            "scale": PackedArray(
                "weight_scale", self.scale, DTYPES[self.scale], (n, groups.index(k)), (Along(0), groups)
            ),
            "shape": PackedArray("weight_shape", "I64", np.dtype(np.int64), (2,), (None,), resident=False),
        }

    def check(self, arrays: Arrays, shape: Shape) -> None:
        """Also refuses a `weight_shape` that is not [N, K]."""
        super().check(arrays, shape)
        if "shape" in arrays and not (np.asarray(arrays["shape"]) == shape[-2:]).all():
            raise ValueError(f"{self.name}: weight_shape is {arrays['shape'].tolist()}, not {list(shape[-2:])}")

    def matrix_decode(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """q * scale: exact."""
        return np.asarray(self.operand(arrays, (n, k))) * self._spread(arrays, k).astype(np.float32)

    def matrix_decode64(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """q * scale: exact."""
        return np.asarray(self.operand(arrays, (n, k)), np.float64) * self._spread(arrays, k)

    def matrix_encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Each group scaled to its largest element."""
        n, k = values.shape
        half = 1 << (self.bits - 1)
        padded = np.pad(np.abs(values), [(0, 0), (0, -k % self.per_scale)])
        amax = padded.reshape(n, -1, self.per_scale).max(-1)
        scale = divided(amax, np.float32(half - 0.5)).astype(DTYPES[self.scale])
        spread = self._spread({"scale": scale}, k).astype(np.float32)
        q = np.rint(divided(values, np.where(spread == 0, np.float32(1), spread)))
        u = np.clip(np.nan_to_num(q), -half, half - 1).astype(np.int64) + half
        return {"codes": pack(u, self.bits, np.int32), "scale": scale, "shape": np.array([n, k], np.int64)}

    def operand(self, block: Arrays, shape: Shape) -> Array:
        """q."""
        codes = unpack(block["codes"], self.bits, shape[-1]).astype(np.float32)
        return codes - np.float32(1 << (self.bits - 1))

    def scales(self, block: Arrays, shape: Shape) -> Array:
        """The scales of the groups."""
        return block["scale"].astype(np.float32)

    def _spread(self, arrays: Arrays, k: int) -> np.ndarray:
        return np.repeat(arrays["scale"], self.per_scale, axis=1)[:, :k].astype(np.float64)
