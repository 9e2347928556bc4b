"""`quant_method: "mxfp4"`: gpt-oss, whose experts are "_blocks" and "_scales"; `modules_to_not_convert` the rest.

Source: transformers 5.24 Mxfp4Config.
"""

from __future__ import annotations

from dgpp.checkpoint.quantization.names import class_of, named_by_part
from dgpp.checkpoint.quantization.scheme import Scheme
from dgpp.checkpoint.quantization.section import Section
from dgpp.checkpoint.quantization.tags import ALIASES, UNQUANTIZED, Tags


def read(section: Section) -> Scheme:
    """The scheme."""
    skipped = section.names("modules_to_not_convert")

    def formats(module: str) -> Tags:
        if class_of(module) != "Linear" or named_by_part(skipped, module, section.where):
            return UNQUANTIZED
        return (ALIASES["gpt-oss mxfp4"],)

    return Scheme("mxfp4", section.where, formats)
