"""Rows of a table straight from the files: for one too large to hold of which a step reads a few rows.

The shards are memory-mapped, so a row costs the pages it lies on, and the kernel keeps what is used often. The table
may be that of another release of the model, whose directory is opened beside.
"""

from __future__ import annotations

import numpy as np

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.inventory import take_inventory
from dgpp.checkpoint.quantization import resolve_tree
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.spec import StoredArray, TensorSpec
from dgpp.formats.minifloat import BFLOAT16


class MappedTable:
    """The table [N, K] that `spec` describes, one module or in parts, left in the files of `checkpoint`."""

    def __init__(self, checkpoint: Checkpoint, spec: TensorSpec) -> None:
        """`spec` takes the format that the table has in `checkpoint`. Reads headers, and what is common to all rows.

        Raises CheckpointError for a missing tensor, a wrong shape or dtype, and a format whose rows cannot be read one
        by one; ValueError for a spec of several layers or of no matrix.
        """
        if spec.layers > 1 or len(spec.shape) != 2:
            raise ValueError(f"{spec.source}: a mapped table is one matrix [N, K]")
        resolved = resolve_tree({"table": spec}, checkpoint)["table"]
        assert isinstance(resolved, TensorSpec)
        take_inventory({"table": resolved}, checkpoint)
        self.spec = resolved
        self._codec = resolved.codec
        module = next(resolved.modules())
        self._common: dict[str, np.ndarray] = {}
        self._parts: dict[str, list[np.ndarray]] = {}
        for array in module.arrays:
            if array.tensor not in checkpoint.tensors:
                continue
            if _is_by_row(array):
                self._parts.setdefault(array.field, []).append(checkpoint.read(array.tensor))
            elif any(dim is not None and dim.axis == 0 for dim in array.packed.dims):
                raise CheckpointError(
                    f"{checkpoint.directory}: {module.name} is stored as {resolved.format}, whose rows cannot be read "
                    f"one by one; hold the table in memory"
                )
            else:
                self._common[array.field] = np.array(checkpoint.read(array.tensor))
        self._rows = resolved.shape[0] // (resolved.parts or 1)  # of a part

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """The rows `ids` int64 [...] as bfloat16 [..., K], by the published formula of the format rounded to bfloat16.

        Raises ValueError for an id that is not below N.
        """
        n, k = self.spec.shape
        flat = np.asarray(ids, np.int64).reshape(-1)
        if flat.size and not (flat.min() >= 0 and flat.max() < n):
            wrong = flat[(flat < 0) | (flat >= n)][0]
            raise ValueError(f"{self.spec.whole or self.spec.source}: there is no row {wrong}; it has {n} rows")
        part, inside = flat // self._rows, flat % self._rows
        arrays = dict(self._common)
        for field, parts in self._parts.items():
            gathered = np.empty((flat.size, *parts[0].shape[1:]), parts[0].dtype)
            for number in np.unique(part):
                chosen = part == number
                gathered[chosen] = parts[number][inside[chosen]]
            arrays[field] = gathered
        values = self._codec.decode(arrays, (flat.size, k))
        return values.astype(BFLOAT16).reshape(*np.shape(ids), k)


def _is_by_row(array: StoredArray) -> bool:
    """Whether the first dimension of an array is one index for every row."""
    dim = array.packed.dims[0] if array.packed.dims else None
    return dim is not None and (dim.axis, dim.per, dim.entries) == (0, 1, 1)
