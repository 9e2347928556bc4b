"""Every format by its one tag. Formats with parameters have a tag for each setting: `format_named` makes them."""

from __future__ import annotations

import functools
import re

from dgpp.formats.base import Format
from dgpp.formats.bf12 import BF12
from dgpp.formats.bf16 import BF16
from dgpp.formats.csf_coded import CSFCoded
from dgpp.formats.dense import Dense
from dgpp.formats.exl3 import EXL3
from dgpp.formats.exl3_trellis import CODEBOOKS
from dgpp.formats.fp8_block import FP8Block
from dgpp.formats.fp8_channel import FP8Channel
from dgpp.formats.fp8_chunked import FP8Chunked
from dgpp.formats.fp8_tensor import FP8Tensor
from dgpp.formats.gptq import GPTQ
from dgpp.formats.int8_planes import Int8Planes
from dgpp.formats.integers import Integers
from dgpp.formats.mixed346 import Mixed346
from dgpp.formats.mxfp4 import MXFP4, NAMES
from dgpp.formats.mxfp8 import MXFP8
from dgpp.formats.nf4i8 import NF4I8
from dgpp.formats.nvfp4 import NVFP4
from dgpp.formats.packed_int import PackedInt

_ALL: tuple[Format, ...] = (
    BF16(),
    BF16(bare=True),
    *(Dense(tag, bare) for tag in ("F16", "F32") for bare in (False, True)),
    Integers(),
    BF12(),
    FP8Block(),
    FP8Block(scale="BF16"),
    FP8Block(scale="E8M0"),
    FP8Block(32, 32, "E8M0"),
    FP8Block(1, 32, "E8M0"),
    FP8Chunked(),
    FP8Channel(),
    FP8Channel("F32"),
    FP8Tensor(),
    FP8Tensor("F32"),
    NVFP4(),
    NVFP4(divisor=True),
    CSFCoded("nvfp4"),
    *(MXFP4(layout) for layout in NAMES),
    CSFCoded("mxfp4"),
    MXFP8(),
    PackedInt(4, 64),
    PackedInt(8, 64),
    PackedInt(4, 128, "F16"),
    PackedInt(8, 128, "F16"),
    GPTQ(4, 128),
    GPTQ(4, 128, 1),
    GPTQ(4, 128, 2),
    GPTQ(4, 128, act_order=True),
    GPTQ(8, 128),
    Int8Planes(),
    NF4I8(),
    *(Mixed346(bits) for bits in (3, 4, 6)),
    *(EXL3(rate, book) for book in CODEBOOKS for rate in range(1, 9)),
    *(EXL3(rate) for rate in (1.5, 2.5, 3.5)),
    *(EXL3(rate, "3inst", legacy=True) for rate in range(1, 9)),
)

FORMATS: dict[str, Format] = {format.name: format for format in _ALL}
"""The formats of the published releases, by tag."""

_PATTERNS = {
    "fp8_block": r"fp8_(?:block(?P<rows>\d+)(?:x(?P<columns>\d+))?|group(?P<group>\d+))(?:_(?P<scale>bf16|e8m0))?",
    "int": r"int(?P<bits>[48])_g(?P<group>\d+)(?:_(?P<scale>f16|f32))?",
    "gptq": r"gptq_int(?P<bits>[48])_g(?P<group>\d+)(?:_asym_v(?P<version>[12]))?(?P<act>_act)?",
}


@functools.cache
def format_named(tag: str) -> Format:
    """The format with this tag: one of `FORMATS`, or one of their kind with other blocks or groups.

    E.g. "fp8_block32x128" (blocks refined by a slice), "int4_g32", "gptq_int4_g64_asym_v1". Raises ValueError with the
    known tags for any other.
    """
    if tag in FORMATS:
        return FORMATS[tag]
    for kind, pattern in _PATTERNS.items():
        if match := re.fullmatch(pattern, tag):
            made = _made(kind, match)
            if made.name == tag:
                return made
    raise ValueError(f"unknown weight format {tag!r}; known are: {', '.join(FORMATS)}")


def _made(kind: str, match: re.Match[str]) -> Format:
    scale = match.groupdict().get("scale")
    if kind == "fp8_block":
        rows = int(match["rows"] or 1)
        columns = int(match["group"] or match["columns"] or rows)
        return FP8Block(rows, columns, scale.upper() if scale else "F32")
    bits, group = int(match["bits"]), int(match["group"])
    if kind == "int":
        return PackedInt(bits, group, scale.upper() if scale else "BF16")
    return GPTQ(bits, group, int(match["version"] or 0), bool(match["act"]))
