"""A family's tree with the formats of one checkpoint: what the loader, the memory plan and the forward go by.

A stack whose layers are in several formats becomes one stack for every run of layers in the same format, under the keys
"0:56" and "56:64"; so nothing that reads one stack has to know of several formats. Experts of one fused tensor are
always in one format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import groupby

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.quantization.table import FormatTable, resolve_formats
from dgpp.checkpoint.quantization.tags import UNQUANTIZED
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import SpecTree, TensorSpec
from dgpp.formats import format_named


def resolve_tree(tree: SpecTree, checkpoint: Checkpoint, table: FormatTable | None = None) -> SpecTree:
    """`tree` with the format that every tensor has in `checkpoint`; a missing tensor keeps the format it had.

    Raises CheckpointError naming the module whose tensors are in no known form, whose shape its format cannot hold, or
    whose format the model cannot use there; and as `resolve_formats` does.
    """
    table = table or resolve_formats(checkpoint)
    try:
        return with_formats(tree, table.format_of)
    except ValueError as error:
        raise CheckpointError(f"{checkpoint.directory}: {error}") from None


def with_formats(tree: SpecTree, format_of: Callable[[str], str | None]) -> SpecTree:
    """`tree` with the formats that `format_of` gives to modules by name; None leaves the format that is there.

    Raises ValueError naming a module whose shape its format cannot hold, or whose format cannot be used there.
    """
    out: SpecTree = {}
    for key, node in tree.items():
        out[key] = _formatted(node, format_of) if isinstance(node, TensorSpec) else with_formats(node, format_of)
    return out


def _formatted(spec: TensorSpec, format_of: Callable[[str], str | None]) -> TensorSpec | SpecTree:
    tags = {layer: _checked(spec, spec.module(layer), format_of(spec.module(layer))) for layer in spec.numbers}
    runs = [list(run) for _, run in groupby(tags, key=tags.__getitem__)]
    if len(runs) == 1:
        return replace(spec, format=tags[spec.first])
    return {
        f"{run[0]}:{run[-1] + 1}": replace(spec, format=tags[run[0]], first=run[0], layers=len(run)) for run in runs
    }


def _checked(spec: TensorSpec, module: str, tag: str | None) -> str:
    if tag is None or tag == spec.format:
        return spec.format
    plain = spec.plain or len(spec.shape) < 2
    if plain and tag not in UNQUANTIZED:
        raise ValueError(
            f"module {module} is stored as {tag}, but its values are used one by one; they can only be "
            f"{', '.join(known for known in UNQUANTIZED if not known.endswith('_bare'))}"
        )
    codec = format_named(tag)
    if spec.linear and len(spec.shape) > 1 and not codec.exact_in:
        raise ValueError(f"module {module} is stored as {tag}; no kernel multiplies by weights of this format")
    try:
        codec.arrays(spec.shape)
    except ValueError as error:
        raise ValueError(f"module {module} has shape {list(spec.shape)}, but is stored as {error}") from None
    return tag
