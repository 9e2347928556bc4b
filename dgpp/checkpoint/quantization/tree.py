"""A family's tree with the formats of one checkpoint: what the loader, the memory plan and the forward go by.

A stack whose layers are in several formats becomes one stack for every run of layers in the same format, under the keys
"0:56" and "56:64"; so nothing that reads one stack has to know of several formats. All experts of a layer are in one
format.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import groupby

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.quantization.table import FormatTable, resolve_formats
from dgpp.checkpoint.quantization.tags import UNQUANTIZED
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import Either, SpecTree, TensorSpec, flatten
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

    Of either one subtree or another, the first counts of which `format_of` knows a module. Raises ValueError naming a
    module whose shape its format cannot hold, or whose format cannot be used there.
    """
    out: SpecTree = {}
    for key, node in tree.items():
        if isinstance(node, TensorSpec):
            out[key] = _formatted(node, format_of)
        else:
            out[key] = with_formats(_stored(node, format_of) if isinstance(node, Either) else node, format_of)
    return out


def _stored(either: Either, format_of: Callable[[str], str | None]) -> SpecTree:
    """The subtree that is stored."""

    def known(tree: SpecTree) -> bool:
        return any(format_of(spec.module(spec.stack[0])) is not None for _, spec in flatten(tree))

    return next(filter(known, either.trees), either.trees[0])


def _formatted(spec: TensorSpec, format_of: Callable[[str], str | None]) -> TensorSpec | SpecTree:
    found: dict[int, tuple[str, str]] = {}  # tag of each layer, and the first module with it
    for layer, module in spec.names():
        if (tag := format_of(module)) is None:
            continue
        of_layer, first = found.setdefault(layer, (tag, module))
        if tag != of_layer:
            raise ValueError(
                f"module {module} is stored as {tag}, but {first} as {of_layer}; all "
                f"{'parts of a table' if spec.parts else 'experts of a layer'} must be in one format"
            )
    for tag, module in found.values():
        _check(spec, module, tag)
    tags = {layer: found[layer][0] if layer in found else spec.format for layer in spec.stack}
    runs = [tuple(run) for _, run in groupby(tags, key=tags.__getitem__)]
    if len(runs) == 1:
        return replace(spec, format=tags[spec.stack[0]])
    ends = [*(run[0] for run in runs[1:]), runs[-1][-1] + 1]
    return {
        f"{run[0]}:{end}": replace(spec, format=tags[run[0]], numbers=run) for run, end in zip(runs, ends, strict=True)
    }


def _check(spec: TensorSpec, module: str, tag: str) -> None:
    if tag == spec.format:
        return
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
        next(iter(replace(spec, format=tag).modules()))
    except ValueError as error:
        raise ValueError(f"module {module} has shape {list(spec.shape)}, but is stored as {error}") from None
