"""A family's tensors against a checkpoint's: what is used, what is missing or of another kind, what is left over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.reader import Checkpoint, StoredTensor
from dgpp.checkpoint.spec import SpecTree, TensorSpec, flatten
from dgpp.formats import PackedArray


@dataclass(frozen=True)
class Row:
    """One tensor of the checkpoint. `path` is where it goes in the weight tree; unused tensors have none.

    `layer` is its place in the stack (None for a tensor that is not per layer); `format` is the weight format, or for
    an unused tensor its header tag.
    """

    tensor: str
    shard: str
    shape: tuple[int, ...]
    format: str
    nbytes: int
    path: str = ""
    layer: int | None = None
    spec: TensorSpec | None = None


@dataclass(frozen=True)
class Inventory:
    """Every tensor of a checkpoint, in the order of the tree, and those the model does not use, by name."""

    used: tuple[Row, ...]
    unused: tuple[Row, ...]
    unindexed: tuple[str, ...]  # tensors that the checkpoint's own index does not list

    @property
    def used_bytes(self) -> int:
        """Bytes of the tensors that are loaded."""
        return sum(row.nbytes for row in self.used)

    @property
    def unused_bytes(self) -> int:
        """Bytes of the tensors that are left in the files."""
        return sum(row.nbytes for row in self.unused)


def take_inventory(tree: SpecTree, checkpoint: Checkpoint) -> Inventory:
    """The inventory of `checkpoint` for the model that `tree` describes.

    Raises CheckpointError naming module and tensor when one is missing, and both sides when shape or dtype differ;
    at most a few are named, with the number of the others.
    """
    used, problems = [], []
    for path, spec in flatten(tree):
        arrays = spec.codec.arrays(spec.shape)
        for layer, field, name in spec.tensor_names():
            stored = checkpoint.tensors.get(name)
            if stored is None:
                problems.append(_missing(checkpoint, path, spec, layer, name))
            elif difference := _difference(arrays[field], stored):
                problems.append(f"tensor {name!r} of module {_module(path, spec, layer)} {difference}")
            else:
                position = layer if spec.layers else None
                used.append(_row(name, stored, spec.format, path=path, layer=position, spec=spec))
    _refuse(checkpoint, problems)
    names = {row.tensor for row in used}
    unused = (_row(name, stored, stored.info.tag) for name, stored in checkpoint.tensors.items() if name not in names)
    return Inventory(tuple(used), tuple(sorted(unused, key=lambda row: row.tensor)), checkpoint.unindexed)


def _row(
    name: str,
    stored: StoredTensor,
    format: str,
    *,
    path: str = "",
    layer: int | None = None,
    spec: TensorSpec | None = None,
) -> Row:
    info = stored.info
    return Row(name, stored.shard, info.shape, format, info.nbytes, path=path, layer=layer, spec=spec)


def _module(path: str, spec: TensorSpec, layer: int) -> str:
    return f"{path}[{layer}]" if spec.layers else path


def _missing(checkpoint: Checkpoint, path: str, spec: TensorSpec, layer: int, name: str) -> str:
    """The complaint about a missing tensor, with what the module does have, which tells another format apart."""
    module = spec.source.format(layer=layer)
    there = sorted(other.removeprefix(module) for other in checkpoint.tensors if other.startswith(module + "."))
    but = f"; the module has only {', '.join(there)}" if there else ""
    return f"tensor {name!r} of module {_module(path, spec, layer)} is missing{but}"


def _difference(expected: PackedArray, stored: StoredTensor) -> str:
    info = stored.info
    if info.tag != expected.tag:
        return f"is stored as {info.tag} in {stored.shard}, but the model needs {expected.tag}"
    if info.stored_shape != expected.shape:
        return f"has shape {list(info.shape)} in {stored.shard}, but config.json makes it {list(expected.shape)}"
    return ""


def _refuse(checkpoint: Checkpoint, problems: Iterable[str], most: int = 5) -> None:
    found = list(problems)
    if found:
        more = [f"and {len(found) - most} more"] if len(found) > most else []
        raise CheckpointError(f"{checkpoint.directory}: " + "; ".join(found[:most] + more))
