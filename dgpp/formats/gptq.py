"""The GPTQ layout of integer groups, K-first, as written by AutoGPTQ, AutoRound and GPTQModel.

Layout: `qweight` I32 [K * bits / 32, N], where the lowest bits of a word are its lowest k; `scales` F16
[ceil(K / group), N], of either sign; `qzeros` I32 [ceil(K / group), N * bits / 32], packed along N; `g_idx` I32 [K],
the group of every k, optional. A tail group may be short.
Value: scale * (u - z), exact in float32 (at most 19 significant bits); the libraries round it to f16 or bf16. The
operand u - z is an integer between -256 and 255, exact in bf16 and f16; each group's finished sum is multiplied by its
scale.

Zero points: version 1 stores z - 1, version 2 stores z, and the releases' `checkpoint_format` is not reliable.
- Symmetric: z = 2^(bits-1), so the stored constant tells the version; anything else is refused. It is not kept: the
  weight loads as a `PackedInt` with F16 scales, transposed to N-first.
- Asymmetric: the version is part of the tag, and nothing in the data can confirm it.
Act-order ("_act"): g_idx is not k // group. The operand's columns are sorted by group and `prepare` sorts the
activations the same way. Without it a g_idx other than k // group is refused.

Encoder: symmetric: scale = w[argmax |w|] / -2^(bits-1), as F16 (so its sign is that of minus the largest weight);
asymmetric: scale = (max - min) / (2^bits - 1) and z = rint(-min / scale). Act-order: the identity order.
Slice rule: rows on whole words of qzeros; columns on groups, with act-order nowhere.
Source: auto-round 0.16 auto_round_extension/torch, gptqmodel 7.7 utils/model.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dgpp.formats.arrays import Array, divided, library
from dgpp.formats.base import Activations, Along, Arrays, PackedArray, Shape
from dgpp.formats.bitstream import pack, unpack
from dgpp.formats.matrix import MatrixFormat
from dgpp.formats.packed_int import PackedInt


def zero_version(qzeros: np.ndarray, bits: int) -> int:
    """1 or 2: how the zero points of a symmetric weight are stored, told by their value.

    Raises ValueError when they are neither all 2^(bits-1) - 1 nor all 2^(bits-1).
    """
    half = 1 << (bits - 1)
    words = np.ascontiguousarray(qzeros)
    stored = np.unique(unpack(words, bits, words.shape[-1] * 32 // bits))
    for version, value in ((1, half - 1), (2, half)):
        if stored.tolist() == [value]:
            return version
    raise ValueError(
        f"qzeros hold the fields {stored.tolist()[:6]}; a symmetric int{bits} weight has {half - 1} everywhere "
        f"(version 1) or {half} everywhere (version 2), so their meaning is ambiguous"
    )


@dataclass(frozen=True)
class GPTQ(MatrixFormat):
    """GPTQ integers of `bits` (4 or 8) in groups of `per_scale`; `version` 0 is symmetric, 1 or 2 asymmetric."""

    bits: int
    per_scale: int
    version: int = 0
    act_order: bool = False

    exact_in = ("bf16", "f16")

    @property
    def name(self) -> str:
        """E.g. "gptq_int4_g128", "gptq_int4_g128_asym_v1", "gptq_int4_g32_act"."""
        zeros = f"_asym_v{self.version}" if self.version else ""
        return f"gptq_int{self.bits}_g{self.per_scale}{zeros}" + ("_act" if self.act_order else "")

    @property
    def slice_rule(self) -> str:
        """Where it may be cut."""
        columns = "nowhere (act-order)" if self.act_order else f"on {self.per_scale}"
        return f"rows on {32 // self.bits}, columns {columns}"

    @property
    def group(self) -> int:
        """Elements under one scale."""
        return self.per_scale

    @property
    def symmetric(self) -> bool:
        """Whether all zero points are 2^(bits-1)."""
        return self.version == 0

    @property
    def loads_as(self) -> str:
        """Symmetric weights in plain order load as a `PackedInt`."""
        return self._packed.name if self.symmetric and not self.act_order else self.name

    def load(self, arrays: Arrays, shape: Shape) -> dict[str, np.ndarray]:
        """The arrays of `loads_as`; transposed to N-first for a `PackedInt`."""
        if self.loads_as == self.name:
            return super().load(arrays, shape)
        payload = np.ascontiguousarray(np.swapaxes(arrays["qweight"], -1, -2))
        return {"codes": payload, "scale": np.ascontiguousarray(np.swapaxes(arrays["scales"], -1, -2))}

    def fields(self, n: int, k: int) -> dict[str, PackedArray]:
        """`qweight`, `scales`, `qzeros`, `g_idx`. N and K must fill whole 32-bit words."""
        per_word = 32 // self.bits
        if k % per_word or n % per_word:
            raise ValueError(f"{self.name}: N = {n} and K = {k} must be multiples of {per_word}")
        i32, f16 = np.dtype(np.int32), np.dtype(np.float16)
        groups, words_k, words_n = Along(1, self.per_scale), Along(1, per_word), Along(0, per_word)
        g = groups.index(k)
        return {
            "qweight": PackedArray("qweight", "I32", i32, (k // per_word, n), (words_k, Along(0)), self._zero_word),
            "scales": PackedArray("scales", "F16", f16, (g, n), (groups, Along(0))),
            "qzeros": PackedArray(
                "qzeros", "I32", i32, (g, n // per_word), (groups, words_n), 0, resident=not self.symmetric
            ),
            "g_idx": PackedArray(
                "g_idx", "I32", i32, (k,), (None,), resident=self.act_order, optional=not self.act_order
            ),
        }

    def check(self, arrays: Arrays, shape: Shape) -> None:
        """Also refuses zero points that are ambiguous, and an order of the groups that the tag does not say."""
        super().check(arrays, shape)
        if self.symmetric and "qzeros" in arrays:
            try:
                zero_version(np.asarray(arrays["qzeros"]), self.bits)
            except ValueError as error:
                raise ValueError(f"{self.name}: {error}") from None
        if "g_idx" in arrays:
            k = shape[-1]
            plain = np.arange(k) // self.per_scale
            g_idx = np.asarray(arrays["g_idx"])
            if not self.act_order and not (g_idx == plain).all():
                raise ValueError(f"{self.name}: g_idx is not k // {self.per_scale}; the weight is in act-order")
            if not (np.sort(g_idx, -1) == plain).all():
                raise ValueError(f"{self.name}: g_idx does not have {self.per_scale} members in every group")

    def matrix_decode(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """scale * (u - z): exact."""
        return self.matrix_decode64(arrays, n, k).astype(np.float32)

    def matrix_decode64(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """scale * (u - z): exact."""
        groups = arrays["g_idx"] if self.act_order else np.arange(k) // self.per_scale
        codes = unpack(np.ascontiguousarray(arrays["qweight"].T), self.bits, k).astype(np.float64)
        zeros = np.asarray(self._zeros(arrays, n), np.float64)
        scales = arrays["scales"].T.astype(np.float64)
        if not self.symmetric:
            return (codes - zeros[:, groups]) * scales[:, groups]
        return (codes - zeros) * scales[:, groups]

    def matrix_encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """Each group scaled to its largest element, or to its range."""
        n, k = values.shape
        half, top = 1 << (self.bits - 1), (1 << self.bits) - 1
        groups = np.pad(values, [(0, 0), (0, -k % self.per_scale)]).reshape(n, -1, self.per_scale)
        if self.symmetric:
            largest = np.take_along_axis(groups, np.abs(groups).argmax(-1)[..., None], -1)[..., 0]
            scale = divided(largest, np.float32(-half)).astype(np.float16)
            zero = np.full(scale.shape, half)
        else:
            low, high = groups.min(-1), groups.max(-1)
            scale = divided(high - low, np.float32(top)).astype(np.float16)
            least = 1 if self.version == 1 else 0  # version 1 cannot store a zero point of 0
            zero = np.rint(divided(-low, self._safe(scale)))
            zero = np.clip(zero, least, top).astype(np.int64)
        q = np.rint(divided(groups, self._safe(scale)[..., None])) + zero[..., None]
        u = np.clip(q, 0, top).astype(np.uint8).reshape(n, -1)[:, :k]
        stored = zero - 1 if self.version != 2 else zero
        out = {
            "qweight": np.ascontiguousarray(pack(u, self.bits, np.int32).T),
            "scales": np.ascontiguousarray(scale.T),
            "qzeros": pack(stored.T, self.bits, np.int32),
        }
        if self.act_order:
            out["g_idx"] = (np.arange(k) // self.per_scale).astype(np.int32)
        return out

    def unit(self, axis: int) -> int:
        """Whole words of qzeros along N, groups along K."""
        return (32 // self.bits, self.per_scale)[axis]

    def pad(self, arrays: Arrays, shape: Shape, axis: int, size: int) -> dict[str, np.ndarray]:
        """Zero weights appended; after a short tail group only where the zero point is a constant."""
        if axis == len(shape) - 1 and shape[axis] % self.per_scale and not self.symmetric and size > shape[axis]:
            raise ValueError(f"{self.name}: cannot be padded after K = {shape[axis]}, which ends inside a group")
        return super().pad(arrays, shape, axis, size)

    def operand(self, block: Arrays, shape: Shape) -> Array:
        """u - z, with columns in the order of the groups."""
        k = shape[-1]
        lib = library(block["qweight"])
        words = block["qweight"].T
        codes = unpack(words, self.bits, k).astype(np.float32)
        zeros = self._zeros(block, codes.shape[0])
        if self.act_order:
            codes = codes[:, self._order(block["g_idx"])]
        if self.symmetric:
            return codes - np.float32(zeros)
        return codes - lib.repeat(zeros.astype(np.float32), self.per_scale, axis=1)[:, :k]

    def scales(self, block: Arrays, shape: Shape) -> Array:
        """The scales of the groups."""
        return block["scales"].T.astype(np.float32)

    def prepare(self, x: Array, arrays: Arrays, shape: Shape) -> Activations:
        """The rows, sorted by group when the weight is in act-order."""
        return Activations(x[:, self._order(arrays["g_idx"])] if self.act_order else x)

    def _check_cuts(self, shape: Shape, axis: int, bounds: Sequence[int]) -> None:
        if self.act_order and axis == len(shape) - 1 and any(0 < bound < shape[axis] for bound in bounds):
            raise ValueError(f"{self.name}: cannot be cut along K, whose order is a permutation (act-order)")
        super()._check_cuts(shape, axis, bounds)

    @property
    def _packed(self) -> PackedInt:
        return PackedInt(self.bits, self.per_scale, "F16")

    @property
    def _zero_word(self) -> float:
        """A word of codes whose weights are zero: the constant zero point; 0 where the scale of the padding is 0."""
        return self._packed.fields(32, 32)["codes"].fill if self.symmetric else 0

    def _zeros(self, arrays: Arrays, n: int) -> Array:
        """The zero points: one constant, or int32 [N, groups]."""
        if self.symmetric:
            return 1 << (self.bits - 1)
        stored = unpack(arrays["qzeros"], self.bits, n).T.astype(np.int32)
        return stored + 1 if self.version == 1 else stored

    @staticmethod
    def _order(g_idx: Array) -> Array:
        return library(g_idx).argsort(g_idx, stable=True)

    @staticmethod
    def _safe(scale: np.ndarray) -> np.ndarray:
        return np.where(scale == 0, np.float32(1), scale.astype(np.float32))
