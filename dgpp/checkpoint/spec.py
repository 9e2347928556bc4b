"""The abstract description of a model's tensors: what `abstract(config)` of every family returns.

One tree of `TensorSpec` drives the loader, `dgpp show`, the fixture writer, the memory plan and the sharding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dgpp.formats import FORMATS, Format, Shape

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
    "heads", "embed", "mlp", "vocab". `layers` is the number of stacked layers, 0 for a tensor that is not per layer.
    """

    source: str
    shape: Shape
    axes: tuple[str, ...]
    format: str = "bf16"
    leaves: Leaves | None = None
    layers: int = 0

    @property
    def codec(self) -> Format:
        """The format object."""
        return FORMATS[self.format]

    @property
    def nbytes(self) -> int:
        """Bytes of all stored arrays, over all layers."""
        return sum(a.nbytes for a in self.codec.arrays(self.shape).values()) * max(1, self.layers)

    def tensor_names(self) -> Iterator[tuple[int, str, str]]:
        """(layer, field, full tensor name in the checkpoint) of every stored array."""
        for layer in range(max(1, self.layers)):
            for field, array in self.codec.arrays(self.shape).items():
                yield layer, field, f"{self.source.format(layer=layer)}.{array.suffix}"


SpecTree = dict[str, "TensorSpec | SpecTree"]


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
