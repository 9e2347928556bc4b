"""The abstract description of a model's tensors: what `abstract(config)` of every family returns.

One tree of `TensorSpec` drives the loader, `dgpp show`, the fixture writer, the memory plan and the sharding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dgpp.formats import Format, PackedArray, Shape, format_named

LEAVES = 4
"""Every row-parallel product is a sum of this many separately rounded parts, whatever the number of ranks."""

EXPERT, PART = "{expert}", "{part}"
"""What stands in a source where the number of an expert, or of a part of a table, goes."""


@dataclass(frozen=True)
class Leaves:
    """Where one axis of a tensor is cut into four leaves; rank r of a world W holds leaves [4r/W, 4(r+1)/W).

    `ranges` are four (start, stop) pairs along logical axis `axis`. A `partition` covers the axis without overlap;
    a tensor that several leaves share a part of (a K/V head used by query heads of two leaves) is not one.
    """

    axis: int
    ranges: tuple[tuple[int, int], ...]
    partition: bool = True


@dataclass(frozen=True)
class StoredArray:
    """A tensor of the checkpoint: `packed` is its form, and array `field` of its module holds it, or `rows` of it."""

    field: str
    tensor: str
    packed: PackedArray
    rows: tuple[int, int] | None = None

    def part(self, array: np.ndarray) -> np.ndarray:
        """What this tensor holds of array `field`: a view."""
        return array if self.rows is None else array[slice(*self.rows)]


@dataclass(frozen=True)
class StoredModule:
    """What is checked and decoded as one: a layer of a spec, or one expert of it.

    `shape` is its logical shape and `lead` its place in the layer: (expert,), or () for a whole layer.
    """

    name: str
    layer: int
    shape: Shape
    lead: tuple[int, ...]
    arrays: tuple[StoredArray, ...]


@dataclass(frozen=True)
class TensorSpec:
    """One tensor of a model, or the same tensor of several layers, stacked.

    `source` is the module's or tensor's name in the checkpoint without the array suffix, with `{layer}` where the
    layer number goes, e.g. "model.layers.{layer}.self_attn.q_proj". `shape` is the logical shape of one layer, and
    `axes` names its axes for people: "heads", "embed", "mlp", "vocab". `numbers` are the numbers of the stacked
    layers, ascending; empty for a tensor that is not per layer.

    With `{expert}` in the source, shape is [E, N, K] and each expert a module of its own, all of a layer in one format.
    With `{part}`, shape is [N, K] and comes from `parts` modules of N / parts rows each; arrays that do not run along N
    (a scale for all of them) then lie under the module `whole`, which may have `{layer}` in it.

    `leaves` cut it for the ranks of a world. Several are bands of one axis, such as the rows of q, k and v: a rank
    holds its slice of the first band, then its slice of the next. `resident` is the format that a weight is held in
    after it is decoded and encoded anew at load; empty when it is held as it is stored.

    A `plain` tensor is read element by element (an embedding), so that it cannot be in a packed format; a `linear` one
    is multiplied by, so that its format must have an operand for kernels. Neither matters for less than two axes, which
    are always read element by element. `values` are those that the config makes of an integer tensor: the loader
    compares them and keeps nothing. Around `centre` lie the random values of a vector in a fixture.

    Raises ValueError for a source, numbers, parts or bands that do not fit each other.
    """

    source: str
    shape: Shape
    axes: tuple[str, ...]
    format: str = "bf16"
    leaves: Leaves | tuple[Leaves, ...] | None = None
    numbers: tuple[int, ...] = ()
    plain: bool = False
    linear: bool = True
    parts: int = 0
    whole: str = ""
    resident: str = ""
    values: tuple[int, ...] = ()
    centre: float = 1

    def __post_init__(self) -> None:
        """Refuses what the loader could not follow."""
        if list(self.numbers) != sorted(set(self.numbers)):
            raise ValueError(f"{self.source}: layer numbers must ascend, got {self.numbers}")
        if (PART in self.source) != bool(self.parts and self.whole) or (self.parts and self.shape[0] % self.parts):
            raise ValueError(f"{self.source}: a table in parts needs `{PART}`, `parts` that divide N, and `whole`")
        if EXPERT in self.source and len(self.shape) < 3:
            raise ValueError(f"{self.source}: experts need a shape [E, N, K], not {list(self.shape)}")
        if len({band.axis for band in self.bands}) > 1:
            raise ValueError(f"{self.source}: bands are ranges of one axis")

    @property
    def layers(self) -> int:
        """The number of stacked layers; 0 for a tensor that is not per layer."""
        return len(self.numbers)

    @property
    def stack(self) -> tuple[int, ...]:
        """The numbers of the stacked layers; just 0 for a tensor that is not per layer."""
        return self.numbers or (0,)

    @property
    def bands(self) -> tuple[Leaves, ...]:
        """The bands that ranks hold slices of; none for a tensor that every rank holds whole."""
        if self.leaves is None:
            return ()
        return (self.leaves,) if isinstance(self.leaves, Leaves) else self.leaves

    @property
    def lead(self) -> Shape:
        """The axes of a layer in front of those of its modules: (E,) for experts, else ()."""
        return self.shape[:1] if EXPERT in self.source else ()

    @property
    def count(self) -> int:
        """The number of modules that a layer is stored in."""
        return self.lead[0] if self.lead else self.parts or 1

    def module(self, layer: int, number: int = 0) -> str:
        """The name in the checkpoint, without a suffix, of layer `layer`, or of expert or part `number` of it."""
        return self.source.format(layer=layer, expert=number, part=number)

    def names(self) -> Iterator[tuple[int, str]]:
        """(layer number, name) of every module that holds weights."""
        for layer in self.stack:
            for number in range(self.count):
                yield layer, self.module(layer, number)

    @property
    def codec(self) -> Format:
        """The format in the checkpoint."""
        return format_named(self.format)

    @property
    def held(self) -> Format:
        """The format in memory: `resident`, or the checkpoint's own but for layouts that are meant for disk only."""
        return format_named(self.resident or self.codec.loads_as)

    @property
    def nbytes(self) -> int:
        """Bytes of all stored arrays, over all layers, but for those whose length only the checkpoint knows."""
        return sum(a.nbytes for a in self.codec.arrays(self.shape).values()) * len(self.stack)

    def modules(self) -> Iterator[StoredModule]:
        """Every module, with its tensors in the checkpoint, by layer and expert."""
        if self.parts:
            yield from (self._table(layer) for layer in self.stack)
            return
        shape = self.shape[len(self.lead) :]
        arrays = self.codec.arrays(shape).items()
        for layer in self.stack:
            for number in range(self.count):
                name = self.module(layer, number)
                stored = tuple(StoredArray(field, packed.tensor(name), packed) for field, packed in arrays)
                yield StoredModule(name, layer, shape, (number,) if self.lead else (), stored)

    def _table(self, layer: int) -> StoredModule:
        """A table that is stored in parts."""
        whole, rows = self.whole.format(layer=layer), self.shape[0] // self.parts
        parts = self.codec.arrays((rows, *self.shape[1:]))
        stored = []
        for field, packed in self.codec.arrays(self.shape).items():
            place, dim = next(((i, d) for i, d in enumerate(packed.dims) if d is not None and d.axis == 0), (0, None))
            if dim is None:
                stored.append(StoredArray(field, packed.tensor(whole), packed))
                continue
            if place or rows % dim.per:
                raise ValueError(f"{whole}: parts of {rows} rows do not lie one after the other in {self.format}")
            for part in range(self.parts):
                inside = (dim.index(part * rows), dim.index((part + 1) * rows))
                stored.append(StoredArray(field, packed.tensor(self.module(layer, part)), parts[field], inside))
        return StoredModule(whole, layer, self.shape, (), tuple(stored))


@dataclass(frozen=True)
class Either:
    """Subtrees of which a checkpoint has one: experts stored one by one, or fused. Without one, the first is meant."""

    trees: tuple[SpecTree, ...]


SpecTree = dict[str, "TensorSpec | SpecTree | Either"]
"""Nested by name. A stack of layers that are not all in one format is a subtree of shorter stacks, "0:56" and "56:64":
the number of the first layer of each, and that of the first layer after it that another one holds."""


DRAFT = "mtp"
"""The key of a family's own prediction layer in a tree."""


def flatten(tree: SpecTree, prefix: str = "") -> Iterator[tuple[str, TensorSpec]]:
    """(path, spec) of every tensor, in the order of the tree; the path joins the keys with dots."""
    for key, node in tree.items():
        path = f"{prefix}.{key}" if prefix else key
        if isinstance(node, TensorSpec):
            yield path, node
        else:
            yield from flatten(node.trees[0] if isinstance(node, Either) else node, path)


def nested(leaves: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The tree of (path, leaf), whose paths join its keys with dots as those of `flatten` do."""
    tree: dict[str, Any] = {}
    for path, leaf in leaves:
        node = tree
        *parents, last = path.split(".")
        for key in parents:
            node = node.setdefault(key, {})
        node[last] = leaf
    return tree


def even_ranges(size: int, leaves: int = LEAVES, unit: int = 1, start: int = 0) -> tuple[tuple[int, int], ...]:
    """`size` units cut by the floor rule of E-2.6, in elements from `start`: leaf r is [size*r//leaves,
    size*(r+1)//leaves) times `unit`."""
    bounds = [start + size * r // leaves * unit for r in range(leaves + 1)]
    return tuple(pairwise(bounds))
