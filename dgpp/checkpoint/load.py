"""From a checkpoint to a tree of weights: each tensor is read once, by several threads, straight into its place.

Tensors of the same kind in all layers are one array with a leading layer axis, allocated once, so the peak is the
size of the weights and not a second copy of anything. Only what is not held as it is stored (coded scales, GPTQ's
K-first layout) passes through memory of its own, see `dgpp.checkpoint.filling`. Arrays start at 64-byte boundaries,
which lets JAX on a CPU use them without copying; so the arrays must not be changed after they are handed over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.filling import Filling, Progress, modules_of
from dgpp.checkpoint.inventory import take_inventory
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.reading import READERS
from dgpp.checkpoint.spec import Either, SpecTree, TensorSpec, flatten
from dgpp.formats import Shape, Weight
from dgpp.formats.arrays import stacked
from dgpp.formats.base import ANY

ALIGNMENT = 64

WeightTree = dict[str, Any]
"""Nested dicts with the keys of the SpecTree and a Weight at every leaf."""


def aligned_empty(shape: Shape, dtype: np.dtype[Any]) -> np.ndarray:
    """An uninitialised C-contiguous array whose first byte lies at a multiple of 64."""
    nbytes = math.prod(shape) * dtype.itemsize
    buffer = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT
    return buffer[start : start + nbytes].view(dtype).reshape(shape)


def load_weights(
    tree: SpecTree,
    checkpoint: Checkpoint,
    progress: Progress | None = None,
    layers: Sequence[int] | None = None,
    threads: int = READERS,
) -> WeightTree:
    """The weights of `tree`, NumPy arrays in their packed form: [L, *stored shape] when stacked over L layers.

    `tree` may be any part of a family's tree, and `layers` may name the layers to load of every stack that has them,
    e.g. (3,): so one layer of a large checkpoint costs the memory of one layer. `threads` read at a time. Everything
    is checked before anything is allocated. Raises CheckpointError for a missing tensor, a wrong shape or dtype,
    weights larger than the memory that is free (with both numbers), a file that cannot be read or ends early, and
    values that cannot be a weight; then nothing stays allocated, even while the error is kept.
    """
    take_inventory(tree, checkpoint)
    specs = dict(flatten(tree))
    count = max((spec.stack[-1] + 1 for spec in specs.values()), default=0)
    chosen = {path: _layers_of(path, spec, layers, count) for path, spec in specs.items()}
    modules = modules_of(specs, chosen, checkpoint)
    held = {
        path: {field: packed for field, packed in spec.held.arrays(spec.shape).items() if packed.resident}
        for path, spec in specs.items()
    }
    needed = sum(len(chosen[path]) * packed.nbytes for path, fields in held.items() for packed in fields.values())
    _check_memory(checkpoint, needed + max((module.scratch for module in modules), default=0))
    stacks = {
        path: {
            field: aligned_empty((len(chosen[path]), *packed.shape), packed.dtype)
            for field, packed in fields.items()
            if ANY not in packed.shape
        }
        for path, fields in held.items()
    }
    filling = Filling(checkpoint.directory, modules, stacks, progress)
    try:
        filling.run(threads)
    except BaseException as error:
        # Whoever keeps an error keeps the frames it passed through, so they must not hold the weights.
        for arrays in stacks.values():
            arrays.clear()
        for module in modules:
            module.read.clear()
        if isinstance(error, CheckpointError | KeyboardInterrupt):
            error.__context__ = None
            raise error.with_traceback(None)  # noqa: B904 - the error itself, without the frames of the readers
        raise

    for (path, field), by_place in filling.ragged.items():
        every = stacked([by_place[place] for place in sorted(by_place)])
        stacks[path][field] = every.reshape(len(chosen[path]), *specs[path].lead, *every.shape[1:])

    def built(node: SpecTree, path: str) -> WeightTree:
        out: WeightTree = {}
        for key, child in node.items():
            at = f"{path}.{key}" if path else key
            if isinstance(child, TensorSpec):
                arrays = {name: stack if child.layers else stack[0, ...] for name, stack in stacks[at].items()}
                numbers = tuple(chosen[at]) if child.layers else ()
                out[key] = Weight(arrays, child.held.name, child.shape, numbers)
            else:
                out[key] = built(child.trees[0] if isinstance(child, Either) else child, at)
        return out

    return built(tree, "")


def _layers_of(path: str, spec: TensorSpec, layers: Sequence[int] | None, count: int) -> Sequence[int]:
    """The numbers of the layers of a stack to load; `count` is the number of layers of the whole model."""
    if layers is None or not spec.layers:
        return spec.stack
    if wrong := [layer for layer in layers if not 0 <= layer < count]:
        raise CheckpointError(f"{path} has layers 0 to {count - 1}; there is no layer {wrong[0]}")
    return [layer for layer in layers if layer in spec.numbers]


def _check_memory(checkpoint: Checkpoint, needed: int) -> None:
    available = available_memory()
    if available is not None and needed > available:
        raise CheckpointError(
            f"{checkpoint.directory}: the weights need {needed / 2**30:.2f} GiB and {available / 2**30:.2f} GiB of "
            f"memory are available; load a part of the tree, or some layers of it"
        )


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping, as the kernel estimates; None where it does not say."""
    path = Path("/proc/meminfo")
    if path.is_file():
        for line in path.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None
