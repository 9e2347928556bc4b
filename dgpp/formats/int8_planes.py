"""The int8 head as bit planes: an argmax that reads three quarters of the bytes and is still exact.

Layout: `planes` U8 [N, K], made at load from unsigned codes u = q + 128 and not a checkpoint format; a row is
- bytes [0, K/2): the high nibbles u >> 4, two per byte, low nibble first;
- bytes [K/2, 3K/4): bits 3 and 2, bytes [3K/4, K): bits 1 and 0. In these two planes each 16 codes are one 32-bit word;
  code j of the 16 is at bit 2 * (j & 3) + (0, 16, 8, 24)[j >> 2].
`scale` F16 [N, K/128], of either sign. Value: (u - 128) * scale, exact in float32; the operand u - 128 is exact in bf16
and f16, and each group's finished sum is multiplied by its scale. 1.015625 bytes per weight; the bound reads 0.765625.

Argmax: with v = 4 * (u >> 2) + 1.5 - 128, which the first two planes give, |u - 128 - v| <= 1.5. So the logit lies
within B = 1.5 * sum_g |s_g| sum_j |x_j| of A = sum_g s_g sum_j v_j x_j. Only rows whose A + B reaches the largest A - B
can win; they alone need the exact sum.
Slice rule: rows anywhere, columns on 128.
Source: the head kernel of 6ixLabs-AI/dgpp, src/kernels/packq_head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dgpp.formats.arrays import Array, library
from dgpp.formats.base import Along, Arrays, PackedArray, Shape
from dgpp.formats.bitstream import pack, unpack
from dgpp.formats.matrix import MatrixFormat
from dgpp.formats.packed_int import PackedInt

GROUP = 128
PLACE = np.array([2 * (j & 3) + (0, 16, 8, 24)[j >> 2] for j in range(16)])
"""The bit of code j in its word of a 2-bit plane."""
_PAIRS = np.argsort(PLACE)  # the code at every 2-bit field of a word
_FIELDS = PLACE // 2  # the 2-bit field of every code


@dataclass(frozen=True)
class Int8Planes(MatrixFormat):
    """int8 with F16 scales per 128, as bit planes."""

    name = "int8_planes_g128"
    exact_in = ("bf16", "f16")
    slice_rule = "rows anywhere, columns on 128"

    @property
    def group(self) -> int:
        """Elements under one scale."""
        return GROUP

    def fields(self, n: int, k: int) -> dict[str, PackedArray]:
        """`planes` and `scale`. K must be a multiple of 128."""
        if k % GROUP:
            raise ValueError(f"{self.name}: K = {k} is not a multiple of {GROUP}")
        dims = (Along(0), Along(1, GROUP))
        return {
            "planes": PackedArray("planes", "U8", np.dtype(np.uint8), (n, k), (Along(0), Along(1, GROUP, GROUP))),
            "scale": PackedArray("scale", "F16", np.dtype(np.float16), (n, k // GROUP), dims),
        }

    @staticmethod
    def from_packed(arrays: Arrays) -> dict[str, np.ndarray]:
        """The planes of an "int8_g128_f16" weight."""
        codes = np.ascontiguousarray(arrays["codes"]).view(np.uint8)
        return {"planes": to_planes(codes), "scale": arrays["scale"]}

    def matrix_decode(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """(u - 128) * scale: exact."""
        return self.matrix_decode64(arrays, n, k).astype(np.float32)

    def matrix_decode64(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """(u - 128) * scale: exact."""
        q = np.asarray(self.operand(arrays, (n, k)), np.float64)
        return q * np.repeat(arrays["scale"].astype(np.float64), GROUP, 1)

    def matrix_encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """As "int8_g128_f16"."""
        return self.from_packed(PackedInt(8, GROUP, "F16").matrix_encode(values))

    def slice(self, arrays: Arrays, shape: Shape, axis: int, start: int, stop: int) -> dict[str, np.ndarray]:
        """The rows as a view; columns are cut in every plane."""
        if axis < len(shape) - 1:
            return super().slice(arrays, shape, axis, start, stop)
        self._check_cuts(shape, axis, (start, stop))
        planes = [plane[..., start * bits // 8 : stop * bits // 8] for plane, bits in _split(arrays["planes"])]
        return {
            "planes": np.concatenate(planes, -1),
            "scale": arrays["scale"][..., start // GROUP : stop // GROUP],
        }

    def pad(self, arrays: Arrays, shape: Shape, axis: int, size: int) -> dict[str, np.ndarray]:
        """Zero scales, so the codes may be anything; columns are added to every plane."""
        if axis < len(shape) - 1:
            return super().pad(arrays, shape, axis, size)
        self.arrays((*shape[:-1], size))
        extra = size - shape[-1]
        lead = [(0, 0)] * (arrays["planes"].ndim - 1)
        planes = [np.pad(plane, [*lead, (0, extra * bits // 8)]) for plane, bits in _split(arrays["planes"])]
        return {
            "planes": np.concatenate(planes, -1),
            "scale": np.pad(arrays["scale"], [*lead, (0, extra // GROUP)]),
        }

    def concatenate(self, parts: Sequence[Arrays], shapes: Sequence[Shape], axis: int) -> dict[str, np.ndarray]:
        """Rows one after the other; columns within every plane."""
        if axis < len(shapes[0]) - 1:
            return super().concatenate(parts, shapes, axis)
        planes = zip(*([plane for plane, _ in _split(part["planes"])] for part in parts), strict=True)
        return {
            "planes": np.concatenate([np.concatenate(same, -1) for same in planes], -1),
            "scale": np.concatenate([part["scale"] for part in parts], -1),
        }

    def operand(self, block: Arrays, shape: Shape) -> Array:
        """u - 128."""
        return from_planes(block["planes"]).astype(np.float32) - np.float32(128)

    def scales(self, block: Arrays, shape: Shape) -> Array:
        """The scales of the groups."""
        return block["scale"].astype(np.float32)


def to_planes(codes: np.ndarray) -> np.ndarray:
    """Rows of codes uint8 [..., K] as rows of planes uint8 [..., K]; K is a multiple of 16."""
    sixteen = codes.reshape(*codes.shape[:-1], -1, 16)[..., _PAIRS]
    middle, low = (pack(((sixteen >> shift) & 3).reshape(codes.shape), 2) for shift in (2, 0))
    return np.concatenate([pack(codes >> 4, 4), middle, low], -1)


def from_planes(planes: Array) -> Array:
    """The codes uint8 [..., K] of rows of planes."""
    lib = library(planes)
    k = planes.shape[-1]
    high, middle, low = (unpack(plane, bits, k) for plane, bits in _split(planes))
    pairs = ((middle << 2) | low).reshape(*planes.shape[:-1], -1, 16)[..., lib.asarray(_FIELDS)]
    return (high << 4) | pairs.reshape(planes.shape)


def argmax_candidates(x: np.ndarray, arrays: Arrays, shape: Shape) -> np.ndarray:
    """bool [N]: the rows of the head that can have the largest logit of activations x [K] (NumPy, float64 sums).

    Reads the high nibbles, bits 3 and 2, and the scales. The bound is widened for float32 sums as the kernels make
    them; the true argmax, ties included, is always among the candidates.
    """
    k = shape[-1]
    (nibbles, _), (pairs, _), _ = _split(arrays["planes"])
    high = unpack(nibbles, 4, k)
    middle = unpack(pairs, 2, k).reshape(shape[0], -1, 16)[..., _FIELDS].reshape(shape[0], k)
    v = 4.0 * ((high.astype(np.int64) << 2) | middle) + 1.5 - 128
    scale = arrays["scale"].astype(np.float64)
    x = np.asarray(x, np.float64).reshape(-1, GROUP)
    near = np.einsum("ng,ngj,gj->n", scale, v.reshape(shape[0], -1, GROUP), x)
    bound = 1.5 * np.abs(scale) @ np.abs(x).sum(-1)
    bound = bound + 1e-3 * (bound + np.abs(near)) + 1e-6
    return near + bound >= (near - bound).max()


def _split(planes: Array) -> list[tuple[Array, int]]:
    """(plane, bits per code) of the three planes of rows [..., K]."""
    k = planes.shape[-1]
    return [(planes[..., : k // 2], 4), (planes[..., k // 2 : 3 * k // 4], 2), (planes[..., 3 * k // 4 :], 2)]
