"""Filling the arrays of a tree from a checkpoint's files: in the order of the files, checked module by module.

A module's tensors that are held as they are stored are read to where they stay. The others (coded scales, GPTQ's
K-first layout, weights that are encoded anew, shapes that are only checked) are read to memory of their own, converted
and dropped; at most `SCRATCH` bytes of it exist at a time, or one module if that is larger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.reader import Checkpoint, StoredTensor
from dgpp.checkpoint.reading import Piece, Readers, pieces
from dgpp.checkpoint.spec import StoredArray, TensorSpec
from dgpp.formats import Shape
from dgpp.formats.base import ANY

SCRATCH = 64 << 20

AHEAD = 4
"""Pieces that wait for each thread, so that none is idle while a module is checked or converted."""

Progress = Callable[[int, int], None]
"""Called in the loading thread after every piece with the bytes read so far and the bytes to read in all."""


@dataclass(eq=False)
class Module:
    """A stored module of a spec, those of its tensors that are there, and its place in the loaded stack."""

    name: str
    path: str
    spec: TensorSpec
    shape: Shape
    place: tuple[Any, ...]  # an index of the stack: layer, expert if there are any, and an ellipsis
    stored: list[tuple[StoredArray, StoredTensor]]
    read: dict[str, np.ndarray] = field(default_factory=dict)
    left: int = 0  # bytes still to be read

    @property
    def position(self) -> tuple[str, int]:
        """Where it starts in the files."""
        return min((entry.shard, entry.offset) for _, entry in self.stored)

    @property
    def nbytes(self) -> int:
        """Bytes to read."""
        return sum(entry.info.nbytes for _, entry in self.stored)

    def stays(self, array: StoredArray) -> bool:
        """Whether a tensor is read to where it stays."""
        return array.packed.resident and self.spec.held is self.spec.codec

    @property
    def scratch(self) -> int:
        """Bytes of the arrays that do not stay."""
        return sum(entry.info.nbytes for array, entry in self.stored if not self.stays(array))


def modules_of(specs: Mapping[str, TensorSpec], layers: Mapping[str, Sequence[int]], c: Checkpoint) -> list[Module]:
    """The modules of the chosen layers of every spec, in the order of the files. All tensors that must be are there."""
    modules = []
    for path, spec in specs.items():
        places = {layer: place for place, layer in enumerate(layers[path])}
        for module in spec.modules():
            if module.layer in places:
                stored = [(array, c.tensors[array.tensor]) for array in module.arrays if array.tensor in c.tensors]
                place = (places[module.layer], *module.lead, ...)
                modules.append(Module(module.name, path, spec, module.shape, place, stored))
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
        self.ragged: dict[tuple[str, str], dict[tuple[Any, ...], np.ndarray]] = {}
        """{(path, field): arrays by place} of the arrays whose length follows from the data."""

    def run(self, threads: int) -> None:
        """Fills the stacks. Raises CheckpointError for a file that cannot be read and values that are no weight."""
        files: Counter[Path] = Counter()
        for module in self._modules:
            for _, entry in module.stored:
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
        for array, entry in module.stored:
            if array.field not in module.read:
                module.read[array.field] = self._memory(module, array, entry)
            out = array.part(module.read[array.field])
            path = self._directory / entry.shard
            yield from pieces(path, entry.offset, out.reshape(-1).view(np.uint8).data, array.tensor)

    def _memory(self, module: Module, array: StoredArray, entry: StoredTensor) -> np.ndarray:
        """Where a field of a module is read to, all parts of it."""
        if module.stays(array):
            return self._stacks[module.path][array.field][module.place]
        if module.spec.parts:
            packed = module.spec.codec.arrays(module.shape)[array.field]
            return np.empty(packed.shape, packed.dtype)
        return np.empty(entry.info.stored_shape, entry.info.dtype)

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
        codec, shape = module.spec.codec, module.shape
        try:
            codec.check(module.read, shape)
            _check_values(module)
        except ValueError as error:
            raise CheckpointError(f"{self._directory}: module {module.name}: {error}") from None
        if module.spec.held is not codec:
            self._put(module, _converted(module))
        self._scratch -= module.scratch
        module.read.clear()

    def _put(self, module: Module, arrays: Mapping[str, np.ndarray]) -> None:
        """Puts the arrays of a module where they stay; those whose length follows from the data when all are there."""
        stacks = self._stacks[module.path]
        for name, packed in module.spec.held.arrays(module.shape).items():
            if ANY in packed.shape:
                self.ragged.setdefault((module.path, name), {})[module.place] = arrays[name]
            elif packed.resident:
                stacks[name][module.place] = arrays[name]


def _check_values(module: Module) -> None:
    """Raises ValueError when an integer tensor does not hold what the config makes it."""
    wanted = module.spec.values
    if wanted and (found := tuple(module.read["values"].reshape(-1).tolist())) != wanted:
        raise ValueError(f"it holds {list(found)}, but config.json makes it {list(wanted)}")


def _converted(module: Module) -> dict[str, np.ndarray]:
    """The arrays in which a module is held in memory, from those that were read."""
    spec = module.spec
    if spec.resident:
        return spec.held.encode(spec.codec.decode(module.read, module.shape))
    return spec.codec.load(module.read, module.shape)
