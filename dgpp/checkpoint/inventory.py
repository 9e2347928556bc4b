"""A family's tensors against a checkpoint's: what is used, what is missing or of another kind, what is left over.

Every tensor of the checkpoint is in one of three lists. Some that a format or a release brings along are read and
checked but not kept: the shape beside packed codes, zero points that are constant, the marker of a codebook. Scales of
activations and of a quantised K/V cache are known and left alone, since activations and cache stay bfloat16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.reader import Checkpoint, StoredTensor
from dgpp.checkpoint.spec import SpecTree, StoredArray, StoredModule, TensorSpec, flatten
from dgpp.formats import PackedArray

_ACTIVATIONS = "scale of activations, which stay bf16"
_CACHE = "scale of a quantised K/V cache, which stays bf16"
SCALARS = {
    "input_scale": _ACTIVATIONS,
    "input_global_scale": _ACTIVATIONS,
    "output_scale": _CACHE,
    "q_scale": _CACHE,
    "k_scale": _CACHE,
    "v_scale": _CACHE,
}
"""Last parts of tensor names that mean one number which is not used, and why."""

FLOATS = ("F32", "F16", "BF16")

MOST_NAMED = 5
"""Problems that an error describes; the others are counted."""


@dataclass(frozen=True)
class Row:
    """One tensor of the checkpoint. `path` is where it goes in the weight tree; unused tensors have none.

    `layer` is the number of its layer (None for a tensor that is not per layer) and `expert` that of its expert, if
    experts are stored one by one; `format` is the weight format, or for a tensor that is not used its header tag;
    `note` says why one is ignored.
    """

    tensor: str
    shard: str
    shape: tuple[int, ...]
    format: str
    nbytes: int
    path: str = ""
    layer: int | None = None
    expert: tuple[int, ...] = ()
    spec: TensorSpec | None = None
    note: str = ""

    @property
    def places(self) -> tuple[int, ...]:
        """Its layer and its expert, as far as it has them."""
        return (*(() if self.layer is None else (self.layer,)), *self.expert)


@dataclass(frozen=True)
class Inventory:
    """Every tensor of a checkpoint: those that are kept, in the order of the tree, those that are ignored knowingly,
    and those that the model does not use, by name."""

    used: tuple[Row, ...]
    ignored: tuple[Row, ...]
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
    used: list[Row] = []
    ignored: list[Row] = []
    problems: list[str] = []
    for path, spec in flatten(tree):
        for module in spec.modules():
            layer, at = module.layer if spec.layers else None, _at(path, spec, module)
            for array in module.arrays:
                name, packed = array.tensor, array.packed
                stored = checkpoint.tensors.get(name)
                if stored is None and packed.optional:
                    continue
                if stored is None:
                    problems.append(_missing(checkpoint, at, array) if len(problems) < MOST_NAMED else name)
                elif difference := _difference(packed, stored):
                    problems.append(f"tensor {name!r} of module {at} {difference}")
                else:
                    row = _row(name, stored, spec.format, path=path, layer=layer, expert=module.lead, spec=spec)
                    if packed.resident:
                        used.append(row)
                    else:
                        ignored.append(replace(row, format=stored.info.tag, spec=None, note=_checked_note(packed)))
    seen = {row.tensor for row in (*used, *ignored)}
    unused = []
    for name, stored in checkpoint.tensors.items():
        if name in seen:
            continue
        row = _row(name, stored, stored.info.tag)
        note = SCALARS.get(name.rpartition(".")[2])
        if note and stored.info.tag in FLOATS and math.prod(row.shape) == 1:
            ignored.append(replace(row, note=note))
        else:
            unused.append(row)
    _refuse(checkpoint, problems)
    return Inventory(
        tuple(used), tuple(ignored), tuple(sorted(unused, key=lambda row: row.tensor)), checkpoint.unindexed
    )


def _checked_note(array: PackedArray) -> str:
    return SCALARS.get(array.suffix, "checked and dropped")


def _row(
    name: str,
    stored: StoredTensor,
    format: str,
    *,
    path: str = "",
    layer: int | None = None,
    expert: tuple[int, ...] = (),
    spec: TensorSpec | None = None,
) -> Row:
    info = stored.info
    return Row(name, stored.shard, info.shape, format, info.nbytes, path, layer, expert, spec)


def _at(path: str, spec: TensorSpec, module: StoredModule) -> str:
    """Where a module goes in the weight tree, e.g. "layers.up_proj[3][17]"."""
    places = (*((module.layer,) if spec.layers else ()), *module.lead)
    return path + "".join(f"[{place}]" for place in places)


def _missing(checkpoint: Checkpoint, at: str, array: StoredArray) -> str:
    """The complaint about a missing tensor, with what the module does have, which tells another format apart."""
    module = array.tensor.removesuffix(array.packed.tensor(""))
    there = sorted(
        other.removeprefix(module) for other in checkpoint.tensors if other.startswith((module + ".", module + "_"))
    )
    others = [f"and {len(there) - MOST_NAMED} more"] if len(there) > MOST_NAMED else []
    but = f"; the module has only {', '.join([*there[:MOST_NAMED], *others])}" if there else ""
    return f"tensor {array.tensor!r} of module {at} is missing{but}"


def _difference(expected: PackedArray, stored: StoredTensor) -> str:
    info = stored.info
    if info.tag not in (expected.tag, *expected.also):
        return f"is stored as {info.tag} in {stored.shard}, but the model needs {expected.tag}"
    if not expected.fits(info.stored_shape):
        return f"has shape {list(info.shape)} in {stored.shard}, but config.json makes it {list(expected.shape)}"
    return ""


def _refuse(checkpoint: Checkpoint, problems: list[str]) -> None:
    if problems:
        more = [f"and {len(problems) - MOST_NAMED} more"] if len(problems) > MOST_NAMED else []
        raise CheckpointError(f"{checkpoint.directory}: " + "; ".join(problems[:MOST_NAMED] + more))
