"""Worlds: how the ranks that hold a model's slices add up their parts. `fold` is the only collective of a layer."""

from dgpp.world.fold import Mesh, Single, World, fold_tree

__all__ = ["Mesh", "Single", "World", "fold_tree"]
