"""From a model's options to what is opened: a config with scaled positions, and a tree whose tensors are held anew.

A tree here is a family's own in the formats of a checkpoint. What an option does not reach stays as it is stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from dgpp.checkpoint.quantization.tags import UNQUANTIZED
from dgpp.checkpoint.slicing import local_format, local_shape
from dgpp.checkpoint.spec import SpecTree, TensorSpec, flatten, nested
from dgpp.engine.options import ModelOptions, OptionsError
from dgpp.formats.fp8_block import FP8Block
from dgpp.kernels import Kernels
from dgpp.models.family import Family, NgramSource

SPLIT = re.compile(r"\.\d+:\d+$")
"""What a path ends in when it is one part of a stack whose layers are in several formats."""

BF16 = ("bf16", "bf16_bare")
FP8 = FP8Block().name
BF12 = "bf12"


def scaled_config(family: Family, config: Any, options: ModelOptions) -> Any:
    """`config` with the positions that `rope_scaling` gives it: the angles, and the ceiling original * factor.

    Raises OptionsError for a family without the option, a checkpoint that is scaled already, and a wrong field.
    """
    if options.rope_scaling is None:
        return config
    if not family.supports.rope_scaling:
        raise _unsupported("rope_scaling", family)
    try:
        rope = config.rope.scaled(options.yarn)
    except ValueError as error:
        raise OptionsError(str(error)) from None
    return replace(config, rope=rope, max_position_embeddings=int(rope.original_positions * rope.factor))


def ngram_source(family: Family, config: Any, options: ModelOptions) -> NgramSource | None:
    """Where the table is that `ngram_table` or `ngram_table_model` is about; None when neither is set.

    Raises OptionsError for a model without a table.
    """
    key = next((key for key, _ in options.changed() if key.startswith("ngram_table")), None)
    if key is None:
        return None
    source = family.supports.ngram_table
    if source is None or source.table(config) is None:
        raise _unsupported(key, family)
    return source


def chosen_kernels(family: Family, config: Any, options: ModelOptions, kernels: Kernels) -> Kernels:
    """`kernels` with the form of the delta rule that `delta_form` asks for.

    Raises OptionsError for a family without DeltaNet layers.
    """
    if options.delta_form == "step":
        return kernels
    if "delta.s" not in family.state(config, 1):
        raise _unsupported("delta_form", family)
    from dgpp.kernels.recurrence.chunked import gated_delta

    return replace(kernels, gated_delta=gated_delta, delta_joined=None)


def held_tree(family: Family, tree: SpecTree, options: ModelOptions, world: int) -> tuple[SpecTree, tuple[str, ...]]:
    """(`tree` with the forms that the options give its weights; notes about what they reached).

    Raises OptionsError for an option that the family does not have, or that finds nothing to encode.
    """
    notes = []
    if options.dense_weights != "checkpoint":
        tree = _in_fp8("dense_weights", family.supports.dense_weights, family, tree)
    if options.mtp_expert_format != "checkpoint":
        tree = _in_fp8("mtp_expert_format", family.supports.mtp_expert_format, family, tree)
    if options.bf16_weights != "checkpoint":
        tree, packed, others = _in_bf12(tree, world)
        notes.append(
            f"engine.bf16_weights {options.bf16_weights}: {packed} of {packed + others} BF16 linears are held in 12 "
            f"bits; it takes a K, and in a world of {world} slices of it, that are multiples of 1024"
        )
    return tree, tuple(notes)


def parted(tree: SpecTree, paths: Sequence[str]) -> tuple[SpecTree, SpecTree]:
    """(`tree` without the tensors at `paths`; a tree of just those)."""
    specs = dict(flatten(tree))
    taken = {path: spec for path, spec in specs.items() if path in paths}
    return nested((path, spec) for path, spec in specs.items() if path not in taken), nested(taken.items())


def merged(tree: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Two nested trees with different leaves as one."""
    out = dict(tree)
    for key, node in other.items():
        out[key] = merged(out[key], node) if key in out else node
    return out


def _unsupported(key: str, family: Family) -> OptionsError:
    return OptionsError(f"engine.{key} is not supported by family {family.name} or its checkpoint; leave it out")


def _in_fp8(key: str, pattern: str, family: Family, tree: SpecTree) -> SpecTree:
    """`tree` with the tensors that `pattern` finds in FP8 blocks, where they are stored unquantised."""
    if not pattern:
        raise _unsupported(key, family)
    found = {path: spec for path, spec in flatten(tree) if re.search(pattern, SPLIT.sub("", path))}
    chosen = {path for path, spec in found.items() if spec.format in UNQUANTIZED}
    if not chosen:
        stored = next(
            (f"{spec.source} is stored as {spec.format}" for spec in found.values()), "no such tensor is open"
        )
        raise OptionsError(f"engine.{key} fp8 has nothing to encode: {stored}; supported: checkpoint")
    return _changed(tree, lambda path, spec: replace(spec, resident=FP8) if path in chosen else spec)


def _in_bf12(tree: SpecTree, world: int) -> tuple[SpecTree, int, int]:
    """(`tree` with the BF16 linears in 12 bits that can be; their number; that of the others)."""
    counts = [0, 0]

    def change(path: str, spec: TensorSpec) -> TensorSpec:
        if spec.format not in BF16 or spec.resident or spec.plain or not spec.linear or len(spec.shape) < 2:
            return spec
        packed = replace(spec, resident=BF12)
        try:
            packed.held.arrays(spec.shape)
            local_format(packed, world).arrays(local_shape(packed, world))
        except ValueError:
            counts[1] += len(spec.stack)
            return spec
        counts[0] += len(spec.stack)
        return packed

    return _changed(tree, change), counts[0], counts[1]


def _changed(tree: SpecTree, change: Callable[[str, TensorSpec], TensorSpec], prefix: str = "") -> SpecTree:
    """`tree` with `change` applied to every path and tensor."""
    out: SpecTree = {}
    for key, node in tree.items():
        path = f"{prefix}.{key}" if prefix else key
        if isinstance(node, TensorSpec):
            out[key] = change(path, node)
        else:
            assert isinstance(node, dict), f"{path}: the layout of the checkpoint is not resolved"
            out[key] = _changed(node, change, path)
    return out
