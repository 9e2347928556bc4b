"""`quant_method: "dgpp_mixed"`: GLM-5.3-Flash with NVFP4 experts put into its FP8 release.

The routed experts of `routed_experts.layers` are in the compressed-tensors `format` that it names; everything else,
draft layer and attention included, is as in the FP8 release, whose fields stand beside.
Source: the GLM-5.3-Flash-NVFP4-FP8 release.
"""

from __future__ import annotations

from dgpp.checkpoint.quantization import fp8
from dgpp.checkpoint.quantization.codebooks import quantized_modules
from dgpp.checkpoint.quantization.scheme import Scheme
from dgpp.checkpoint.quantization.section import Section
from dgpp.checkpoint.quantization.tags import Tags, alias


def read(section: Section) -> Scheme:
    """The scheme. Raises CheckpointError naming a format of the experts that is not supported."""
    base, inside = fp8.read(section), quantized_modules(section)
    routed = section.section("routed_experts")
    tag = alias(routed.text("format"))
    if tag is None:
        raise routed.error(f"format {routed.text('format')!r} is not supported")
    experts: Tags = (tag,)

    def formats(module: str) -> Tags:
        return experts if inside(module) else base.formats(module)

    return Scheme("dgpp_mixed", section.where, formats)
