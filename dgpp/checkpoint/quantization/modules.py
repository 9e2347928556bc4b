"""A checkpoint's tensors by module: the payload of a weight, its scales, and what else bears its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dgpp.checkpoint.reader import StoredTensor
from dgpp.formats import FORMATS

Signature = tuple[tuple[str, str, tuple[int, ...]], ...]
"""Suffix, header tag and shape of every tensor of a module: equal ones are stored in the same way."""

PAYLOADS = ("weight", "weight_packed", "weight_indices", "qweight", "trellis", "_blocks", "")
"""The suffixes under which weights are stored; "" is a tensor that is named directly."""

MADE_AT_LOAD = ("bf12", "int8_planes_g128")
"""Formats that no checkpoint is stored in."""

SUFFIXES = frozenset(
    array.suffix
    for tag, format in FORMATS.items()
    if tag not in MADE_AT_LOAD
    for array in format.arrays((1024, 1024)).values()
    if array.suffix
)
"""The suffixes of all formats that checkpoints are stored in."""

_DEEP = tuple(suffix for suffix in SUFFIXES if "." in suffix)
_JOINED = tuple(suffix for suffix in SUFFIXES if suffix.startswith("_"))

BESIDE = frozenset({"bias", "input_scale", "input_global_scale", "k_scale", "v_scale", "q_scale", "output_scale"})
"""Tensors beside a weight that do not change its values: a bias, and scales of activations and of the K/V cache."""


SHARD = re.compile(r"\.shard_\d+$")
"""What the name of a part of a table ends in."""


@dataclass
class Module:
    """The tensors of one module by suffix; `others` are those whose suffix no format has."""

    name: str
    tensors: dict[str, StoredTensor] = field(default_factory=dict)
    others: dict[str, StoredTensor] = field(default_factory=dict)

    @property
    def payloads(self) -> tuple[str, ...]:
        """The suffixes of its weights: one, unless the checkpoint is broken."""
        return tuple(suffix for suffix in PAYLOADS if suffix in self.tensors)

    @property
    def signature(self) -> Signature:
        """What tells how the module is stored."""
        both = [*self.tensors.items(), *self.others.items()]
        return tuple(sorted((suffix, stored.info.tag, stored.info.shape) for suffix, stored in both))

    def tag(self, suffix: str) -> str:
        """The header tag of a tensor; "" when it is not there."""
        return self.tensors[suffix].info.tag if suffix in self.tensors else ""

    def shape(self, suffix: str) -> tuple[int, ...]:
        """The stored shape of a tensor that is there."""
        return self.tensors[suffix].info.stored_shape


def whole_of(module: str) -> str:
    """The name of the table that a module is a part of, by which configs call it; any other module's own name."""
    return SHARD.sub("", module)


def modules_of(tensors: Mapping[str, StoredTensor]) -> dict[str, Module]:
    """Every module by name. A tensor without a known suffix is a module of its own, unless it is beside a weight. The
    parts of a table have the scales that the table has for all of them."""
    found: dict[str, Module] = {}
    unknown: list[tuple[str, str, str, StoredTensor]] = []
    for name, stored in tensors.items():
        module, suffix = _split(name)
        if suffix is None:
            parent, _, last = name.rpartition(".")
            unknown.append((name, parent, last, stored))
        else:
            found.setdefault(module, Module(module)).tensors[suffix] = stored
    for name, parent, last, stored in unknown:
        if parent in found and found[parent].payloads:
            found[parent].others[last] = stored
        else:
            found[name] = Module(name, {"": stored})
    tables = {name: found[whole] for name in found if (whole := whole_of(name)) != name and whole in found}
    for name, table in tables.items():
        if not table.payloads:
            found[name].tensors = {**table.tensors, **found[name].tensors}
            found.pop(table.name, None)
    return found


def _split(name: str) -> tuple[str, str | None]:
    """(module, suffix) of a tensor; the suffix is None when no format has it."""
    module, _, last = name.rpartition(".")
    if last in SUFFIXES and module:
        return module, last
    for suffix in _DEEP:
        if name.endswith("." + suffix):
            return name[: -len(suffix) - 1], suffix
    for suffix in _JOINED:
        if name.endswith(suffix):
            return name[: -len(suffix)], suffix
    return name, None
