"""`quant_method: "fp8"`: the FP8 releases of GLM, Qwen, DeepSeek and MiMo.

`weight_block_size` [rows, columns] is the grid of the scales, null for one scale a tensor. Nothing says whether the
scales are F32, BF16 or E8M0 (`scale_fmt: "ue8m0"` is also written for powers of two in F32), nor whether a fused QKV
has a grid for each of its chunks, so any agrees. Modules in `modules_to_not_convert` or `ignored_layers` are not
quantised; those in `modules_to_convert` are (embedding tables). Experts may be in another format:
`expert_dtype: "fp4"` (DeepSeek) or `store_dtype: "mxfp4"` (MiMo).
Source: transformers 5.24 FineGrainedFP8Config and should_convert_module.
"""

from __future__ import annotations

import re

from dgpp.checkpoint.quantization.names import class_of, named_by_part
from dgpp.checkpoint.quantization.scheme import Scheme
from dgpp.checkpoint.quantization.section import Section
from dgpp.checkpoint.quantization.tags import UNQUANTIZED, Tags, alias
from dgpp.formats.fp8_block import FP8Block
from dgpp.formats.fp8_chunked import FP8Chunked

EXPERTS = re.compile(r"\.experts(\.|$)")
PER_TENSOR: Tags = ("fp8_tensor*", "fp8_channel*")


def read(section: Section) -> Scheme:
    """The scheme. Raises CheckpointError for another element type, and for an expert format that is not known."""
    if section.text("fmt", "e4m3") != "e4m3":
        raise section.error(f"fmt {section.text('fmt')!r} is not supported; supported: e4m3")
    quantized = _blocks(section)
    skipped = (*section.names("modules_to_not_convert"), *section.names("ignored_layers"))
    added = section.names("modules_to_convert")
    experts = _experts(section) or quantized

    def formats(module: str) -> Tags:
        if named_by_part(skipped, module, section.where):
            return UNQUANTIZED
        if named_by_part(added, module, section.where):
            return (*quantized, *PER_TENSOR)
        if class_of(module) != "Linear":
            return UNQUANTIZED
        return experts if EXPERTS.search(module) else quantized

    return Scheme("fp8", section.where, formats)


def _blocks(section: Section) -> Tags:
    if "weight_block_size" in section.values and not section.has("weight_block_size"):
        return PER_TENSOR
    block = section.values.get("weight_block_size", [128, 128])
    if not isinstance(block, list) or len(block) != 2 or not all(type(size) is int and size > 0 for size in block):
        raise section.error(f"weight_block_size must be two positive integers, got {block!r}")
    tags = [FP8Block(block[0], block[1], scale).name for scale in ("F32", "BF16", "E8M0")]
    tags.append(FP8Block(1, block[1], "E8M0").name)
    return (*tags, FP8Chunked().name) if block == [128, 128] else tuple(tags)


def _experts(section: Section) -> Tags:
    """The format of routed experts where it is another one; empty otherwise."""
    if (store := section.text("store_dtype", "fp8")) != "fp8":
        if section.integer("mxfp4_block_size", 32) != 32:
            raise section.error(f"mxfp4_block_size {section.integer('mxfp4_block_size')} is not supported; it is 32")
        return _known(section, "store_dtype", store, f"store {store}")
    if (expert := section.text("expert_dtype", "fp8")) != "fp8":
        return _known(section, "expert_dtype", expert, f"expert {expert}")
    return ()


def _known(section: Section, key: str, value: str, name: str) -> Tags:
    tag = alias(name)
    if tag is None:
        raise section.error(f"{key} {value!r} is not supported")
    return (tag,)
