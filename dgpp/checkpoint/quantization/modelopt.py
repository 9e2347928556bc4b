"""`quant_method: "modelopt"`: NVIDIA's exports, in the form of config.json or of hf_quant_config.json.

`quant_algo` names one format for all linears but those that a glob of `ignore` (`exclude_modules`) matches;
"MIXED_PRECISION" has one per entry of `quantized_layers`, keyed by a module or by one that encloses it, and leaves
everything else as it is. `weight_scale_encoding: "csf"` says that block scales are coded. A release may carry both
files; what either says agrees.
Source: nvidia-modelopt 0.47 torch/export/convert_hf_config.py; the FP4-Local releases for csf.
"""

from __future__ import annotations

from collections.abc import Mapping

from dgpp.checkpoint.quantization.names import class_of, named_by_glob
from dgpp.checkpoint.quantization.scheme import Scheme
from dgpp.checkpoint.quantization.section import Section
from dgpp.checkpoint.quantization.tags import UNQUANTIZED, Tags, alias

GROUPS = {"nvfp4": 16, "nvfp4_csf": 16, "mxfp4": 32, "mxfp4_csf": 32, "mxfp8": 32}


def read(section: Section) -> Scheme:
    """The scheme of one file. Raises CheckpointError naming an algorithm or a group size that is not supported."""
    skipped = (*section.names("ignore"), *section.names("exclude_modules"))
    layers = {name: _tags(entry) for name, entry in section.sections("quantized_layers").items()}
    everywhere = UNQUANTIZED if section.text("quant_algo") == "MIXED_PRECISION" else _tags(section)

    def formats(module: str) -> Tags:
        if named_by_glob(skipped, module):
            return UNQUANTIZED
        if (tags := _enclosing(layers, module)) is not None:
            return tags
        return everywhere if class_of(module) == "Linear" else UNQUANTIZED

    kv_cache = section.values.get("kv_cache_scheme") or section.values.get("kv_cache_quant_algo")
    return Scheme("modelopt", section.where, formats, "" if kv_cache is None else str(kv_cache))


def either(first: Scheme, second: Scheme) -> Scheme:
    """Two files of one release: what either says of a module agrees."""
    where = f"{first.where} and {second.where}"
    return Scheme(
        "modelopt",
        where,
        lambda module: (*first.formats(module), *second.formats(module)),
        first.kv_cache or second.kv_cache,
    )


def _tags(entry: Section) -> Tags:
    name = entry.text("quant_algo")
    if entry.flag("pre_quant_scale"):
        raise entry.error(f"quant_algo {name!r} with pre_quant_scale is not supported: it rescales the activations")
    encoding = entry.text("weight_scale_encoding")
    tag = alias(name + (f"/{encoding}" if encoding else ""))
    if tag is None:
        coded = f" with weight_scale_encoding {encoding!r}" if encoding else ""
        raise entry.error(f"quant_algo {name!r}{coded} is not supported")
    group = entry.integer("group_size", 0) or GROUPS.get(tag)
    if group != GROUPS.get(tag, group):
        raise entry.error(f"group_size {group} is not supported for {name}; it is {GROUPS[tag]}")
    return (tag,)


def _enclosing(layers: Mapping[str, Tags], module: str) -> Tags | None:
    """The entry of the module itself, or of the innermost module around it."""
    name = module
    while name:
        if name in layers:
            return layers[name]
        name = name.rpartition(".")[0]
    return None
