"""The abstract description of a model's tensors: what `abstract(config)` of every family returns.

One tree of `TensorSpec` drives the loader, `dgpp show`, the fixture writer, the memory plan and the sharding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dgpp.formats import Format, Shape, format_named

LEAVES = 4
"""Every row-parallel product is a sum of this many separately rounded parts, whatever the number of ranks."""


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
class TensorSpec:
    """One tensor of a model, or the same tensor of every layer, stacked.

    `source` is the module's or tensor's name in the checkpoint without the array suffix, with `{layer}` where the
    layer number goes, e.g. "model.layers.{layer}.self_attn.q_proj". `axes` names the logical axes for people:
    "heads", "embed", "mlp", "vocab". `layers` is the number of stacked layers, 0 for a tensor that is not per layer;
    `first` is the number of the first of them. A `plain` tensor is read element by element (an embedding), so that it
    cannot be in a packed format; a `linear` one is multiplied by, so that its format must have an operand for kernels.
    Neither matters for less than two axes, which are always read element by element.
    """

    source: str
    shape: Shape
    axes: tuple[str, ...]
    format: str = "bf16"
    leaves: Leaves | None = None
    layers: int = 0
    first: int = 0
    plain: bool = False
    linear: bool = True

    @property
    def numbers(self) -> range:
        """The numbers of the stacked layers; just 0 for a tensor that is not per layer."""
        return range(self.first, self.first + max(1, self.layers))

    def module(self, layer: int) -> str:
        """The name in the checkpoint, without a suffix, of layer `layer`."""
        return self.source.format(layer=layer)

    @property
    def codec(self) -> Format:
        """The format in the checkpoint."""
        return format_named(self.format)

    @property
    def held(self) -> Format:
        """The format in memory: the checkpoint's own, but for layouts that are meant for disk only."""
        return format_named(self.codec.loads_as)

    @property
    def nbytes(self) -> int:
        """Bytes of all stored arrays, over all layers, but for those whose length only the checkpoint knows."""
        return sum(a.nbytes for a in self.codec.arrays(self.shape).values()) * max(1, self.layers)

    def tensor_names(self) -> Iterator[tuple[int, str, str]]:
        """(layer number, field, full tensor name in the checkpoint) of every stored array."""
        for layer in self.numbers:
            for field, array in self.codec.arrays(self.shape).items():
                yield layer, field, array.tensor(self.module(layer))


SpecTree = dict[str, "TensorSpec | SpecTree"]
"""Nested by name. A stack of layers that are not all in one format is a subtree of shorter stacks, "0:56" and "56:64",
whose keys are the layers from and up to."""


def flatten(tree: SpecTree, prefix: str = "") -> Iterator[tuple[str, TensorSpec]]:
    """(path, spec) of every tensor, in the order of the tree; the path joins the keys with dots."""
    for key, node in tree.items():
        path = f"{prefix}.{key}" if prefix else key
        if isinstance(node, TensorSpec):
            yield path, node
        else:
            yield from flatten(node, path)


def even_ranges(size: int, leaves: int = LEAVES) -> tuple[tuple[int, int], ...]:
    """`size` cut by the floor rule of E-2.6: leaf r is [size*r//leaves, size*(r+1)//leaves)."""
    return tuple((size * r // leaves, size * (r + 1) // leaves) for r in range(leaves))
