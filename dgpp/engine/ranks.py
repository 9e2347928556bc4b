"""What the ranks of a world hold of a model's weights: which specs, and their slices side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgpp.checkpoint.slicing import local_format, local_shape, rank_slice
from dgpp.checkpoint.spec import SpecTree, TensorSpec, flatten, nested
from dgpp.checkpoint.traffic import as_stored
from dgpp.engine.settings import SettingsError
from dgpp.formats import Weight
from dgpp.formats.arrays import stacked

Tied = Mapping[str, tuple[str, TensorSpec]]
"""{path: (path it reads, spec)} of tensors that read another one's data."""


def check_world(tree: SpecTree, tied: Tied, world: int) -> None:
    """Raises SettingsError naming a tensor whose format cannot be cut for a world of this size."""
    for spec in rank_specs(tree, tied, world)[0].values():
        try:
            local_format(spec, world)
        except ValueError as error:
            raise SettingsError(f"{spec.source} cannot be shared by {world} ranks: {error}") from None


def rank_specs(tree: SpecTree, tied: Tied, world: int) -> tuple[dict[str, TensorSpec], dict[str, str]]:
    """The specs that ranks hold, by path, and the path of the weight that each reads its data from."""
    specs = dict(flatten(tree))
    sources = {path: path for path in specs}
    if world > 1:
        for path, (source, spec) in tied.items():
            specs[path], sources[path] = as_stored(spec, specs[source]), source
    return specs, sources


def rank_weights(tree: SpecTree, tied: Tied, weights: Mapping[str, Any], world: int) -> dict[str, Any]:
    """The tree of weights as (array, is it ranked) pairs: as loaded in world 1, else each rank's slices, stacked."""
    specs, sources = rank_specs(tree, tied, world)
    out: dict[str, Weight] = {}
    for path, spec in specs.items():
        node: Any = weights
        for key in sources[path].split("."):
            node = node[key]
        ranked = world > 1 and spec.leaves is not None
        if ranked:
            slices = [rank_slice(spec, node.arrays, world, rank) for rank in range(world)]
            arrays = {name: (stacked([part[name] for part in slices]), True) for name in slices[0]}
        else:
            arrays = {name: (array, False) for name, array in node.arrays.items()}
        out[path] = Weight(arrays, local_format(spec, world).name, local_shape(spec, world), spec.numbers)
    return nested(out.items())
