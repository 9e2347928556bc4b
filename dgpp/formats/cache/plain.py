"""BF16 rows: the values as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dgpp.formats.arrays import Array
from dgpp.formats.cache.base import Plane
from dgpp.formats.minifloat import BFLOAT16


@dataclass(frozen=True)
class PlainRows:
    """Plane `rows` BF16 [dim]; 2 bytes per value."""

    name: str = "bf16"

    def planes(self, dim: int) -> dict[str, Plane]:
        """One plane."""
        return {"rows": Plane(BFLOAT16, (dim,))}

    def encode(self, rows: Array) -> dict[str, Array]:
        """The rows."""
        return {"rows": rows}

    def decode(self, planes: Mapping[str, Array], dim: int) -> Array:
        """The values: exact."""
        return planes["rows"].astype("float32")
