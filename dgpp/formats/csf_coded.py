"""NVFP4 and MXFP4 whose plane of block scales is CSF-coded, as in the FP4-Local releases.

Layout: the format inside, with its scale plane [N, C] replaced by two tensors named after it: `fixed` U8
[N/16, slab bytes] and `exceptions` U32 [any]. "nvfp4_csf" has ".weight_scale.nvfp4_csf_fixed" and
".weight_scale.nvfp4_csf_exceptions", "mxfp4_csf" the same with "mxfp4". Values are those of the format inside, bit for
bit. About 0.531 bytes per NVFP4 weight; a loader usually expands the plane once (`load`).

Slice rule: rows on slabs of 16; columns where the format inside can be cut and an offset starts a byte (32 elements for
NVFP4, 256 for MXFP4); exceptions are filtered and renumbered. Stacks of layers differ in their number of exceptions,
so they are expanded first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dgpp.formats import csf
from dgpp.formats.arrays import Array, at, block
from dgpp.formats.base import ANY, Along, Arrays, PackedArray, Shape
from dgpp.formats.matrix import MatrixFormat
from dgpp.formats.mxfp4 import MXFP4
from dgpp.formats.nvfp4 import NVFP4

INNER: dict[str, tuple[NVFP4 | MXFP4, int, int]] = {"nvfp4": (NVFP4(), 16, 4), "mxfp4": (MXFP4(), 32, 1)}


@dataclass(frozen=True)
class CSFCoded(MatrixFormat):
    """The format `of` ("nvfp4" or "mxfp4") with coded scales."""

    of: str = "nvfp4"

    slice_rule = "rows on 16, columns where an offset starts a byte (32 for nvfp4, 256 for mxfp4)"

    @property
    def name(self) -> str:
        """ "nvfp4_csf" or "mxfp4_csf"."""
        return f"{self.of}_csf"

    @property
    def exact_in(self) -> tuple[str, ...]:
        """As the format inside."""
        return self._inner.exact_in

    @property
    def loads_as(self) -> str:
        """The format inside."""
        return self._inner.name

    def load(self, arrays: Arrays, shape: Shape) -> dict[str, np.ndarray]:
        """The arrays with the plane expanded."""
        kept = {name: array for name, array in arrays.items() if name not in ("fixed", "exceptions", "input_scale")}
        return {**kept, "scale": self._scale(arrays, shape)}

    def fields(self, n: int, k: int) -> dict[str, PackedArray]:
        """Those of the format inside, with `fixed` and `exceptions` instead of `scale`. N must be a multiple of 16."""
        inner = self._inner.fields(n, k)
        columns = k // self._group
        if n % csf.SLAB or columns % 2 or n * columns > csf.MOST:
            raise ValueError(
                f"{self.name}: a scale plane needs N % 16 = 0, an even number of columns and at most 2^24 bytes, "
                f"not {n} x {columns}"
            )
        slab = csf.slab_bytes(columns, self._bits)
        prefix = f"{inner['scale'].suffix}.{self.of}_csf_"
        codes = inner.pop("codes")
        del inner["scale"]
        return {
            "codes": codes,
            "fixed": PackedArray(
                prefix + "fixed", "U8", np.dtype(np.uint8), (n // csf.SLAB, slab), (Along(0, csf.SLAB), None)
            ),
            "exceptions": PackedArray(prefix + "exceptions", "U32", np.dtype(np.uint32), (ANY,), (None,)),
            **inner,
        }

    def check(self, arrays: Arrays, shape: Shape) -> None:
        """Also refuses exceptions that do not ascend or lie outside the plane."""
        super().check(arrays, shape)
        csf.check(np.asarray(arrays["exceptions"]), shape[-2], shape[-1] // self._group)
        self._inner.check({**arrays, "scale": self._scale(arrays, shape)}, shape)

    def matrix_decode(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """As the format inside."""
        return self._inner.matrix_decode({**arrays, "scale": self._scale(arrays, (n, k))}, n, k)

    def matrix_decode64(self, arrays: Arrays, n: int, k: int) -> np.ndarray:
        """As the format inside."""
        return self._inner.matrix_decode64({**arrays, "scale": self._scale(arrays, (n, k))}, n, k)

    def matrix_encode(self, values: np.ndarray) -> dict[str, np.ndarray]:
        """The format inside, with its scales coded."""
        return self._coded(self._inner.matrix_encode(values))

    def slice(self, arrays: Arrays, shape: Shape, axis: int, start: int, stop: int) -> dict[str, np.ndarray]:
        """The coded slice: expanded, cut and coded again, which changes no value."""
        self._check_cuts(shape, axis, (start, stop))
        return self._coded(self._inner.slice(self.load(arrays, shape), shape, axis, start, stop))

    def pad(self, arrays: Arrays, shape: Shape, axis: int, size: int) -> dict[str, np.ndarray]:
        """Expanded, padded and coded again."""
        self.arrays((*shape[:axis], size, *shape[axis + 1 :]))
        return self._coded(self._inner.pad(self.load(arrays, shape), shape, axis, size))

    def concatenate(self, parts: Sequence[Arrays], shapes: Sequence[Shape], axis: int) -> dict[str, np.ndarray]:
        """Expanded, joined and coded again."""
        return self._coded(
            self._inner.concatenate([self.load(*part) for part in zip(parts, shapes, strict=True)], shapes, axis)
        )

    def unit(self, axis: int) -> int:
        """Slabs of rows; columns whose offsets fill whole bytes."""
        return csf.SLAB if axis == 0 else math.lcm(self._inner.unit(1), self._group * 8 // self._bits)

    def rows(self, arrays: Arrays, shape: Shape, start: Array, count: int, lead: Sequence[Array] = ()) -> Arrays:
        """The arrays of the format inside, of these rows."""
        plain = {name: array for name, array in arrays.items() if name not in ("fixed", "exceptions")}
        inner = dict(super().rows(plain, shape, start, count, lead))
        slabs = block(arrays["fixed"], lead, 0, start // csf.SLAB, count // csf.SLAB)
        columns = shape[-1] // self._group
        return {**inner, "scale": csf.expand(slabs, at(arrays["exceptions"], lead), columns, self._bits, start)}

    def operand(self, block: Arrays, shape: Shape) -> Array:
        """As the format inside."""
        return self._inner.operand(block, shape)

    def epilogue(self, y: Array, arrays: Arrays, shape: Shape) -> Array:
        """As the format inside."""
        return self._inner.epilogue(y, arrays, shape)

    @property
    def _inner(self) -> NVFP4 | MXFP4:
        return INNER[self.of][0]

    @property
    def _group(self) -> int:
        return INNER[self.of][1]

    @property
    def _bits(self) -> int:
        return INNER[self.of][2]

    def _scale(self, arrays: Arrays, shape: Shape) -> np.ndarray:
        if arrays["fixed"].ndim != 2:
            raise ValueError(f"{self.name}: a stack of layers must be expanded layer by layer (`load`)")
        columns = shape[-1] // self._group
        return csf.expand(np.asarray(arrays["fixed"]), np.asarray(arrays["exceptions"]), columns, self._bits)

    def _coded(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        fixed, exceptions = csf.encode(arrays.pop("scale"), self._bits)
        return {**arrays, "fixed": fixed, "exceptions": exceptions}
