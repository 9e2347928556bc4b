"""`quant_method: "compressed-tensors"`: groups of targets with a scheme each.

A module that `ignore` names is not quantised, whatever targets say. Otherwise the first group in document order with a
matching target counts. A target is "re:" and an expression that matches from the start of the name, a full name, or a
class. The format is the group's own `format` or else that of the whole config; with the strategy of the weights, their
bits and group size it gives the tag.
Source: compressed-tensors 0.20 config/base.py and utils/match.py.
"""

from __future__ import annotations

from dgpp.checkpoint.quantization.names import named_by_target
from dgpp.checkpoint.quantization.scheme import Scheme
from dgpp.checkpoint.quantization.section import Section
from dgpp.checkpoint.quantization.tags import UNQUANTIZED, Tags, alias

GROUPS = {"nvfp4-pack-quantized": 16, "mxfp4-pack-quantized": 32, "mxfp8-quantized": 32}


def read(section: Section) -> Scheme:
    """The scheme. Raises CheckpointError naming a format that is not supported, sparsity, and transforms."""
    if section.section("sparsity_config").text("format", "dense") != "dense":
        raise section.error(f"sparsity_config {section.section('sparsity_config').text('format')!r} is not supported")
    if section.section("transform_config").section("config_groups").values:
        raise section.error("transform_config is not supported: its rotations would be missing from the model")
    ignored = section.names("ignore")
    groups = [(group.names("targets"), _tags(section, group)) for group in section.sections("config_groups").values()]

    def formats(module: str) -> Tags:
        if named_by_target(ignored, module, section.where):
            return UNQUANTIZED
        return next((tags for targets, tags in groups if named_by_target(targets, module, section.where)), UNQUANTIZED)

    kv_cache = section.values.get("kv_cache_scheme")
    return Scheme("compressed-tensors", section.where, formats, "" if kv_cache is None else str(kv_cache))


def _tags(section: Section, group: Section) -> Tags:
    name = group.text("format") or section.text("format")
    if name == "dense":
        return UNQUANTIZED
    weights = group.section("weights")
    if not weights.flag("symmetric", True):
        raise weights.error(f"{name} with symmetric=false is not supported")
    strategy = weights.text("strategy", "group" if weights.has("group_size") else "channel")
    if name in GROUPS:
        if weights.integer("group_size", GROUPS[name]) != GROUPS[name]:
            raise weights.error(f"group_size {weights.integer('group_size')} is not supported for {name}")
        key = name
    else:
        key = f"{name}/{strategy}"
    tag = alias(key, num_bits=weights.values.get("num_bits"), group_size=weights.values.get("group_size"))
    if tag is None:
        raise group.error(f"format {name!r} with strategy {strategy!r} is not supported")
    if name == "pack-quantized" and weights.integer("num_bits") not in (4, 8):
        raise weights.error(f"num_bits {weights.integer('num_bits')} is not supported for {name}; supported: 4, 8")
    return (tag,)
