"""Worlds: what the ranks that hold a model's slices exchange. `leaves` is the only collective of a layer."""

from dgpp.world.leaves import Mesh, Single, World

__all__ = ["Mesh", "Single", "World"]
