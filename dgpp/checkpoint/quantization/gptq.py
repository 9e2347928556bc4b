"""`quant_method: "gptq"` and `"auto-round"`: one setting for the linears of the layers, with overrides by name.

`bits`, `group_size` (-1: all of K), `sym` and `desc_act` hold for every linear inside the layers, and for the head when
`lm_head` is true. `dynamic` maps "+:" and an expression to other settings and "-:" to none; the first that matches
counts, and also reaches outside the layers; a setting of a rule that is not known is refused. A rule may name a draft
layer `mtp.layers.0` as the one after the model's last, e.g. `layers.48`. `extra_config` (AutoRound) does the same by
name or expression, with 16 bits for none. `modules_in_block_to_quantize` names the only ones. The version of the zero
points follows from `checkpoint_format` ("gptq": 1, "gptq_v2": 2) or `packing_format` ("auto_round:auto_gptq": 1, other
AutoRound packings: 2). For symmetric weights the stored zero points decide instead. Source: gptqmodel 7.7
quantization/config.py (dynamic_get); auto-round 0.16 inference/convert_model.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dgpp.checkpoint.quantization.names import draft_alias, named_by_regex
from dgpp.checkpoint.quantization.scheme import Scheme
from dgpp.checkpoint.quantization.section import Section
from dgpp.checkpoint.quantization.tags import UNQUANTIZED, Tags

LAYER = re.compile(r"(^|\.)layers\.\d+\.")
SETTINGS = frozenset({"bits", "group_size", "sym", "desc_act"})
WHILE_QUANTIZING = frozenset({"mse", "damp_percent", "damp_auto_increment", "static_groups", "act_group_aware"})
"""Settings of a rule of `dynamic`: those that say how weights are stored, and those that say how they were made."""

VERSIONS = {"gptq": 1, "gptq_v2": 2, "auto_round:auto_gptq": 1}


def read(section: Section, layers: int | None = None) -> Scheme:
    """The scheme of a model of `layers` layers. Raises CheckpointError naming a packing, a number of bits or a setting
    that is not supported."""
    version = _version(section)
    base = _tags(section, section, version)
    rules = [
        *_dynamic(section, version),
        *((name, _override(section, entry, version)) for name, entry in section.sections("extra_config").items()),
    ]
    only = [name for names in section.values.get("modules_in_block_to_quantize") or () for name in _list(names)]

    def formats(module: str) -> Tags:
        names = (module, *draft_alias(module, layers))
        for pattern, tags in rules:
            if pattern in names or any(named_by_regex(pattern, name, section.where) for name in names):
                return tags
        if LAYER.search(module):
            return base if not only or any(name in module for name in only) else UNQUANTIZED
        return base if module.endswith("lm_head") and section.flag("lm_head") else UNQUANTIZED

    return Scheme(section.text("quant_method", "gptq"), section.where, formats)


def _version(section: Section) -> int:
    """1 or 2; 0 when the config does not say."""
    packing = section.text("packing_format")
    name = packing or section.text("checkpoint_format") or section.text("format")
    if packing.startswith("auto_round") and "awq" not in packing and "mlx" not in packing:
        return VERSIONS.get(packing, 2)
    if name and name not in VERSIONS:
        raise section.error(f"weights packed as {name!r} are not supported; supported: {', '.join(VERSIONS)}")
    return VERSIONS.get(name, 0)


def _dynamic(section: Section, version: int) -> list[tuple[str, Tags]]:
    rules = []
    for pattern, entry in section.sections("dynamic").items():
        if pattern.startswith("-:"):
            rules.append((pattern[2:], UNQUANTIZED))
        else:
            if unknown := sorted(entry.values.keys() - SETTINGS - WHILE_QUANTIZING):
                raise entry.error(f"{unknown[0]} is not supported; supported: {', '.join(sorted(SETTINGS))}")
            rules.append((pattern.removeprefix("+:"), _override(section, entry, version)))
    return rules


def _override(section: Section, entry: Section, version: int) -> Tags:
    if entry.integer("bits", section.integer("bits")) == 16:
        return UNQUANTIZED
    return _tags(section, entry, version)


def _tags(section: Section, entry: Section, version: int) -> Tags:
    values: Mapping[str, object] = {**section.values, **entry.values}
    merged = Section(entry.where, values)
    bits, group = merged.integer("bits"), merged.integer("group_size", -1)
    if bits not in (4, 8):
        raise entry.error(f"bits {bits} is not supported for GPTQ weights; supported: 4, 8")
    if merged.text("data_type", "int") != "int":
        raise entry.error(f"data_type {merged.text('data_type')!r} is not supported; supported: int")
    name = f"gptq_int{bits}_g{group if group > 0 else '*'}"
    if merged.flag("sym", True):
        # Without act-order in the data, desc_act makes no difference.
        return (name, f"{name}_act") if merged.flag("desc_act") else (name,)
    versions = (version,) if version else ()
    return tuple(f"{name}_asym_v{known}{act}" for known in versions for act in ("", "_act")) or (f"{name}_asym",)


def _list(names: object) -> list[str]:
    return [str(name) for name in names] if isinstance(names, list) else [str(names)]
