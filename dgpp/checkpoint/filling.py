"""Filling the arrays of a tree from a checkpoint's files: in the order of the files, checked module by module.

A module's tensors that are held as they are stored are read to where they stay. The others (coded scales, GPTQ's
K-first layout, shapes that are only checked) are read to memory of their own, converted and dropped; at most `SCRATCH`
bytes of it exist at a time, or one module if that is larger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.reader import Checkpoint, StoredTensor
from dgpp.checkpoint.reading import Piece, Readers, pieces
from dgpp.checkpoint.spec import TensorSpec

SCRATCH = 64 << 20

AHEAD = 4
"""Pieces that wait for each thread, so that none is idle while a module is checked or converted."""

Progress = Callable[[int, int], None]
"""Called in the loading thread after every piece with the bytes read so far and the bytes to read in all."""


@dataclass(eq=False)
class Module:
    """The stored tensors of one layer of a spec, by field, and the place of that layer in the loaded stack."""

    name: str
    path: str
    spec: TensorSpec
    place: int
    stored: dict[str, tuple[str, StoredTensor]]  # full name and entry in the table
    read: dict[str, np.ndarray] = field(default_factory=dict)
    left: int = 0  # bytes still to be read

    @property
    def position(self) -> tuple[str, int]:
        """Where it starts in the files."""
        return min((entry.shard, entry.offset) for _, entry in self.stored.values())

    @property
    def nbytes(self) -> int:
        """Bytes to read."""
        return sum(entry.info.nbytes for _, entry in self.stored.values())

    @property
    def stays(self) -> frozenset[str]:
        """The fields that are read to where they stay."""
        if self.spec.held is not self.spec.codec:
            return frozenset()
        return frozenset(name for name, array in self.spec.codec.arrays(self.spec.shape).items() if array.resident)

    @property
    def scratch(self) -> int:
        """Bytes of the arrays that do not stay."""
        stays = self.stays
        return sum(entry.info.nbytes for name, (_, entry) in self.stored.items() if name not in stays)


def modules_of(specs: Mapping[str, TensorSpec], layers: Mapping[str, Sequence[int]], c: Checkpoint) -> list[Module]:
    """The modules of the chosen layers of every spec, in the order of the files. All tensors that must be are there."""
    modules = []
    for path, spec in specs.items():
        for place, layer in enumerate(layers[path]):
            name = spec.source.format(layer=layer)
            tensors = {array: packed.tensor(name) for array, packed in spec.codec.arrays(spec.shape).items()}
            stored = {array: (tensor, c.tensors[tensor]) for array, tensor in tensors.items() if tensor in c.tensors}
            modules.append(Module(name, path, spec, place, stored))
    return sorted(modules, key=lambda module: module.position)


class Filling:
    """One load of `modules` into `stacks`, {path: {field: [layers, ...]}}."""

    def __init__(
        self,
        directory: Path,
        modules: Sequence[Module],
        stacks: Mapping[str, dict[str, np.ndarray]],
        progress: Progress | None,
    ) -> None:
        self._directory = directory
        self._modules = modules
        self._stacks = stacks
        self._progress = progress
        self._total = sum(module.nbytes for module in modules)
        self._done = 0
        self._scratch = 0
        self._owners: dict[int, Module] = {}  # of the pieces that are being read, by id

    def run(self, threads: int) -> None:
        """Fills the stacks. Raises CheckpointError for a file that cannot be read and values that are no weight."""
        files: Counter[Path] = Counter()
        for module in self._modules:
            for _, entry in module.stored.values():
                files[self._directory / entry.shard] += entry.info.nbytes
        with Readers(files, threads) as readers:
            for module in self._modules:
                while self._scratch and self._scratch + module.scratch > SCRATCH:
                    self._finish(readers.next())
                for piece in self._begin(module):
                    while readers.pending >= AHEAD * threads:
                        self._finish(readers.next())
                    self._owners[id(piece)] = module
                    readers.submit(piece)
                if not module.left:
                    self._complete(module)
            while readers.pending:
                self._finish(readers.next())

    def _begin(self, module: Module) -> Iterator[Piece]:
        """Points every tensor of a module to its memory; the pieces to read, none of them for an empty tensor."""
        module.left = module.nbytes
        self._scratch += module.scratch
        stays = module.stays
        for array, (tensor, entry) in module.stored.items():
            if array in stays:
                out = self._stacks[module.path][array][module.place, ...]
            else:
                out = np.empty(entry.info.stored_shape, entry.info.dtype)
            module.read[array] = out
            yield from pieces(self._directory / entry.shard, entry.offset, out.reshape(-1).view(np.uint8).data, tensor)

    def _finish(self, piece: Piece) -> None:
        """Counts a piece, and completes its module with the last one."""
        module = self._owners.pop(id(piece))
        self._done += len(piece.target)
        module.left -= len(piece.target)
        if self._progress is not None:
            self._progress(self._done, self._total)
        if not module.left:
            self._complete(module)

    def _complete(self, module: Module) -> None:
        """Checks a module, and converts what is held in another format than it is stored in."""
        codec, shape = module.spec.codec, module.spec.shape
        try:
            codec.check(module.read, shape)
        except ValueError as error:
            raise CheckpointError(f"{self._directory}: module {module.name}: {error}") from None
        if module.spec.held is not codec:
            for name, array in codec.load(module.read, shape).items():
                self._stacks[module.path][name][module.place, ...] = array
        self._scratch -= module.scratch
        module.read.clear()
