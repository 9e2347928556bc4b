"""From a checkpoint to a tree of weights: each tensor is read once, straight into its place.

Tensors of the same kind in all layers are one array with a leading layer axis, allocated once, so the peak is the
size of the weights and not a second copy of anything. Arrays start at 64-byte boundaries, which lets JAX on a CPU use
them without copying; so the arrays must not be changed after they are handed over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.inventory import take_inventory
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import SpecTree, TensorSpec, flatten
from dgpp.formats import Shape, Weight

ALIGNMENT = 64

Progress = Callable[[int, int], None]
"""Called after each tensor with the bytes read so far and the bytes to read in all."""

WeightTree = dict[str, Any]
"""Nested dicts with the keys of the SpecTree and a Weight at every leaf."""


def aligned_empty(shape: Shape, dtype: np.dtype[Any]) -> np.ndarray:
    """An uninitialised C-contiguous array whose first byte lies at a multiple of 64."""
    nbytes = math.prod(shape) * dtype.itemsize
    buffer = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % ALIGNMENT
    return buffer[start : start + nbytes].view(dtype).reshape(shape)


def load_weights(
    tree: SpecTree, checkpoint: Checkpoint, progress: Progress | None = None, layers: Sequence[int] | None = None
) -> WeightTree:
    """The weights of `tree`, NumPy arrays in their packed form: [L, *stored shape] when stacked over L layers.

    `tree` may be any part of a family's tree, and `layers` may name the layers to load of every stack, e.g. (3,): so
    one layer of a large checkpoint costs the memory of one layer. Everything is checked before anything is
    allocated. Raises CheckpointError for a missing tensor, a wrong shape or dtype, weights larger than the memory
    that is free (with both numbers), and a file that ends early; nothing half-loaded is returned.
    """
    take_inventory(tree, checkpoint)
    chosen = {path: _layers_of(path, spec, layers) for path, spec in flatten(tree)}
    total = sum(spec.nbytes * len(chosen[path]) // max(1, spec.layers) for path, spec in flatten(tree))
    _check_memory(checkpoint, total)
    done = 0

    def load(node: TensorSpec | SpecTree, path: str) -> Weight | WeightTree:
        nonlocal done
        if not isinstance(node, TensorSpec):
            return {key: load(child, f"{path}.{key}" if path else key) for key, child in node.items()}
        arrays = {}
        for field, packed in node.codec.arrays(node.shape).items():
            stack = aligned_empty((len(chosen[path]), *packed.shape), packed.dtype)
            for place, layer in enumerate(chosen[path]):
                name = f"{node.source.format(layer=layer)}.{packed.suffix}"
                checkpoint.read_into(name, stack[place, ...])
                done += packed.nbytes
                if progress is not None:
                    progress(done, total)
            arrays[field] = stack if node.layers else stack[0, ...]
        return Weight(arrays, node.format, node.shape)

    weights = load(tree, "")
    assert isinstance(weights, dict)
    return weights


def _layers_of(path: str, spec: TensorSpec, layers: Sequence[int] | None) -> Sequence[int]:
    if spec.layers == 0:
        return (0,)
    if layers is None:
        return range(spec.layers)
    if wrong := [layer for layer in layers if not 0 <= layer < spec.layers]:
        raise CheckpointError(f"{path} has layers 0 to {spec.layers - 1}; there is no layer {wrong[0]}")
    return layers


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
