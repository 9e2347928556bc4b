"""How the product kernel reads each weight format: which array holds codes and scales, and where a scale is applied.

A scale per group of K is applied to the group's finished sum, so that every operand is exact in f16, which the hardware
unpacks fastest. Scales of fewer weights than a group are multiplied into the operand instead: NVFP4's E4M3 per 16
(exact, at most 6 significant bits), and small powers of two relative to the group's largest (see `triton_product`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dgpp.formats import Format
from dgpp.formats.bf16 import BF16
from dgpp.formats.dense import Dense
from dgpp.formats.fp8_block import FP8Block
from dgpp.formats.fp8_channel import FP8Channel
from dgpp.formats.fp8_tensor import FP8Tensor
from dgpp.formats.mxfp4 import MXFP4
from dgpp.formats.mxfp8 import MXFP8
from dgpp.formats.nf4i8 import NF4I8
from dgpp.formats.nvfp4 import NVFP4
from dgpp.formats.packed_int import PackedInt
from dgpp.formats.reference import partial
from dgpp.kernels.linear.ranges import Ranges

CODES = ("bf16", "f16", "e4m3", "e2m1", "int4", "int8", "nf4")
"""The operand codes, in the numbering of `triton_decode`."""

LASTS = ("", "times_row", "times", "divided", "divided_by_inverse")
"""The epilogues, in the numbering of `triton_product`."""

SCALES = ("", "numbers", "e8m0", "in_operand")
"""The kinds of scales along K, in the numbering of `triton_product`."""

PART = 256  # what the parts of a sum over all of K are multiples of
GROUP = 128
LEAST_GROUP = 16  # weights in one matrix instruction along K


@dataclass(frozen=True)
class Recipe:
    """The constants of `triton_matrices.product` that a format decides, and the fields of its arrays."""

    code: str
    planes: int = 1  # weights in one element of the payload
    scale: str = ""  # field of the scales along K
    kind: str = ""  # what they are, in SCALES
    scale_rows: int = 1  # rows and columns of the weight under one scale
    scale_width: int = GROUP
    group: int = GROUP  # weights per finished sum, at most GROUP
    payload: str = "codes"
    last: str = ""
    last_field: str = ""
    rotated: bool = False  # whether the rows are first turned by H32

    @property
    def exponent(self) -> int:
        """The power of two by which decoded weights are too small, see `triton_decode`."""
        return 6 if self.code == "e2m1" else 0


def recipe(format: Format, ranges: Ranges, k: int) -> Recipe | None:
    """The recipe for a matrix of K = `k` summed over `ranges`; None where the kernel has none."""
    found = _recipe(format)
    if found is None:
        return None
    if found.kind in ("numbers", "e8m0"):
        size = partial(max(found.scale_width, GROUP) if found.kind == "e8m0" else found.scale_width, ranges, k)
        # A group cut too small for the matrix instruction, or not in halves; or small E8M0 scales cut.
        if size < LEAST_GROUP * found.planes or size & (size - 1):
            return None
        if found.kind == "e8m0" and size < found.scale_width < GROUP:
            return None
        return replace(found, group=min(size, GROUP))
    unit = found.scale_width if found.kind else found.planes
    cut = any(start % unit or (stop % unit and stop != k) for start, stop in ranges)
    return None if cut else found


def _recipe(format: Format) -> Recipe | None:
    match format:
        case BF16():
            return Recipe("bf16", payload="values")
        case Dense(tag="F16"):
            return Recipe("f16", payload="values")
        case FP8Block():
            kind = "e8m0" if format.scale == "E8M0" else "numbers"
            return Recipe("e4m3", 1, "scale", kind, format.block_rows, format.block_columns)
        case FP8Channel():
            return Recipe("e4m3", last="times_row", last_field="scale")
        case FP8Tensor():
            return Recipe("e4m3", last="times", last_field="scale")
        case NVFP4():
            last = "divided" if format.divisor else "divided_by_inverse"
            return Recipe("e2m1", 2, "scale", "in_operand", scale_width=16, last=last, last_field="global_scale")
        case MXFP4():
            return Recipe("e2m1", 2, "scale", "e8m0", scale_width=32)
        case MXFP8():
            return Recipe("e4m3", 1, "scale", "e8m0", scale_width=32)
        case NF4I8():
            return Recipe("nf4", 2, "scale", "numbers", payload="indices", rotated=True)
        case PackedInt():
            return Recipe(f"int{format.bits}", 8 // format.bits, "scale", "numbers", scale_width=format.per_scale)
    return None


def parts(found: Recipe, k: int) -> Ranges:
    """How a sum over all of K is cut: into two ranges of equal length, a multiple of PART but for the last; four where
    small groups take long, so that more programs share the work.

    This is part of the order. It depends on the format and on K, which no rank cuts; neither on rows nor on N.
    """
    count = 2 if found.group == GROUP else 4
    length = -(-k // (count * PART)) * PART
    return tuple((start, min(start + length, k)) for start in range(0, k, length))


def alignment(ranges: Ranges) -> int:
    """The largest power of two, at most 256, that divides where every range starts."""
    return math.gcd(256, *(start for start, _ in ranges))
