"""Weight formats: one file each, with the layout, the exact decode, an encoder and the slice rule."""

from dgpp.formats.base import Format, PackedArray, Shape, Weight
from dgpp.formats.bf16 import BF16

FORMATS: dict[str, Format] = {format.name: format for format in (BF16(),)}

__all__ = ["BF16", "FORMATS", "Format", "PackedArray", "Shape", "Weight"]
