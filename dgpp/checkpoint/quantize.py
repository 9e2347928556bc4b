"""From an unquantised checkpoint to one in a weight format, rounded to nearest: a tool for research.

Every weight becomes the nearest code of its group, and nothing else is known about the model: no activations are
measured, no error is made up for in other weights. Published checkpoints of the same format are usually better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dgpp.checkpoint.declaration import UNQUANTIZED, declare
from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.inventory import take_inventory
from dgpp.checkpoint.quantization import resolve_tree
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import DRAFT, SpecTree, TensorSpec, flatten
from dgpp.checkpoint.writing import SHARD_BYTES, Tagged, copy_other_files, new_directory, write_files, write_shards
from dgpp.formats import Format, format_named

HEAD = "head"
"""The path of a head that is not tied to the embedding."""


@dataclass(frozen=True)
class Quantized:
    """What `quantize` did: the modules in the new format, linears left as they were, and bytes before and after."""

    modules: tuple[str, ...]
    kept: tuple[str, ...]
    before: int
    after: int


def quantize(
    checkpoint: Checkpoint,
    tree: SpecTree,
    tag: str,
    target: Path,
    *,
    head: bool = False,
    keep_unfit: bool = False,
    shard_bytes: int = SHARD_BYTES,
    progress: Callable[[int, int], None] | None = None,
) -> Quantized:
    """Writes `checkpoint` into the new directory `target` with its linears in format `tag`, declared as releases do.

    `tree` is the family's tree. Embedding, norms and whatever is not multiplied by stay as they are, and so does the
    head unless `head`, and the prediction layer; a tied head is the embedding. `keep_unfit` also leaves linears whose
    shape the format cannot hold. `progress` is called with the bytes read so far and in all. Raises CheckpointError for
    a checkpoint that is quantised already, a format that no release stores linears in, a shape that it cannot hold, and
    a `target` that holds files.
    """
    codec = _known(tag)
    take_inventory(resolved := resolve_tree(tree, checkpoint), checkpoint)
    modules: dict[str, TensorSpec] = {}
    kept: list[str] = []
    for path, spec in flatten(resolved):
        if not _is_linear(spec):
            continue
        names = [name for _, name in spec.names()]
        if spec.format.removesuffix("_bare") not in UNQUANTIZED:
            raise CheckpointError(
                f"{checkpoint.directory}: {names[0]} is {spec.format} already; give a BF16 checkpoint"
            )
        problem = _unfit(codec, spec)
        if (path == HEAD and not head) or path.startswith(f"{DRAFT}.") or (problem and keep_unfit):
            kept += names
        elif problem:
            raise CheckpointError(
                f"{names[0]} cannot be quantised: {problem}. Choose another format, or leave such modules as they are"
            )
        else:
            modules |= dict.fromkeys(names, spec)
    if not modules:
        raise CheckpointError(f"{checkpoint.directory}: {tag} can hold none of its linears")
    try:
        declaration = declare(tag, list(modules), kept)
    except ValueError as error:
        raise CheckpointError(str(error)) from None
    config = {key: value for key, value in checkpoint.config.items() if key != "quantization_config"}
    if declaration.config is not None:
        config["quantization_config"] = declaration.config
    with new_directory(target) as directory:
        copy_other_files(checkpoint.directory, directory, but=("config.json", *declaration.files))
        write_files(directory, {"config.json": config, **declaration.files})
        write_shards(directory, _tensors(checkpoint, modules, codec, progress), shard_bytes)
    return Quantized(tuple(modules), tuple(kept), checkpoint.nbytes, Checkpoint.open(target).nbytes)


def _known(tag: str) -> Format:
    try:
        return format_named(tag)
    except ValueError as error:
        raise CheckpointError(str(error)) from None


def _is_linear(spec: TensorSpec) -> bool:
    return spec.linear and not spec.plain and len(spec.shape) > 1


def _unfit(codec: Format, spec: TensorSpec) -> str:
    """Why the format cannot hold a module of the weight; empty when it can."""
    shape = spec.shape[len(spec.lead) :]
    if len(shape) > 2:
        return f"it is one tensor {list(shape)} of several matrices, and releases store them in {codec.name} one by one"
    try:
        codec.arrays(shape)
    except ValueError as error:
        return str(error)
    return "" if codec.exact_in else f"{codec.name}: no kernel multiplies by weights of this format"


def _tensors(
    checkpoint: Checkpoint,
    modules: dict[str, TensorSpec],
    codec: Format,
    progress: Callable[[int, int], None] | None,
) -> Iterator[tuple[str, Tagged]]:
    """Every tensor of the new checkpoint, in the order of the old one's files."""
    owners = {name: module for module, spec in modules.items() for name in _stored(spec, module)}
    done = 0
    for name, stored in sorted(checkpoint.tensors.items(), key=lambda item: (item[1].shard, item[1].offset)):
        if name not in owners:
            yield name, (stored.info.tag, checkpoint.read(name))
        else:
            yield from encoded(codec, owners[name], np.asarray(checkpoint.read(name), np.float32))
        done += stored.info.nbytes
        if progress is not None:
            progress(done, checkpoint.nbytes)


def _stored(spec: TensorSpec, module: str) -> Sequence[str]:
    return [packed.tensor(module) for packed in spec.codec.arrays(spec.shape).values()]


def encoded(codec: Format, module: str, values: np.ndarray) -> Iterator[tuple[str, Tagged]]:
    """(name, tensor) of every array of a module in a format, from its float32 values."""
    packed = codec.arrays(values.shape)
    for name, array in codec.encode(values).items():
        yield packed[name].tensor(module), (packed[name].tag, array)
