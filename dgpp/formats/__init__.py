"""Weight formats: one file each, with the layout, the exact decode, an encoder, the slice rule and the kernel contract.

`FORMATS` is the table by tag, `format_named` also makes formats with other parameters; `dgpp.formats.reference` is the
product of rows and a weight in NumPy. Cache rows are in `dgpp.formats.cache`.
"""

from dgpp.formats.base import ANY, Activations, Along, Format, PackedArray, Shape, Weight
from dgpp.formats.bf16 import BF16
from dgpp.formats.registry import FORMATS, format_named

__all__ = [
    "ANY",
    "BF16",
    "FORMATS",
    "Activations",
    "Along",
    "Format",
    "PackedArray",
    "Shape",
    "Weight",
    "format_named",
]
