"""How an oracle that asks for modules by name gets their values: from any release, or from a plain dictionary."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import SpecTree, flatten

Read = Callable[[str], np.ndarray]


def decoded(tree: SpecTree, checkpoint: Checkpoint) -> Read:
    """Reads modules as float64 values, straight from the tensors of a checkpoint whose resolved tree is `tree`.

    A table in parts is one module, by the name of its whole. Raises KeyError for a module that is not in the tree.
    """
    modules = {module.name: (spec, module) for _, spec in flatten(tree) for module in spec.modules()}

    def read(name: str) -> np.ndarray:
        spec, module = modules[name]
        fields: dict[str, list[np.ndarray]] = {}
        for stored in module.arrays:
            if stored.tensor in checkpoint.tensors:
                fields.setdefault(stored.field, []).append(checkpoint.read(stored.tensor))
        arrays = {name: parts[0] if len(parts) == 1 else np.concatenate(parts) for name, parts in fields.items()}
        return spec.codec.decode64(arrays, module.shape)

    return read


def held(tensors: Mapping[str, np.ndarray]) -> Read:
    """Reads modules from tensors by their names in a BF16 checkpoint: "<module>.weight", "<module>", or numbered
    parts "<module>.shard_<i>.weight"."""

    def read(name: str) -> np.ndarray:
        for key in (f"{name}.weight", name):
            if key in tensors:
                return np.asarray(tensors[key]).astype(np.float64)
        count = sum(key.startswith(f"{name}.shard_") for key in tensors)
        if not count:
            raise KeyError(name)
        return np.concatenate([np.asarray(tensors[f"{name}.shard_{i}.weight"]) for i in range(count)]).astype(float)

    return read
