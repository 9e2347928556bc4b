"""I64: integers that a release stores beside its weights, such as the multipliers of a hash.

Layout: field `values`, dtype I64, of any shape, named directly. They follow from config.json, so they are compared with
it at load and not kept: nothing is resident. Slice rule: none is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgpp.formats.base import Along, PackedArray, Shape
from dgpp.formats.dense import Dense


@dataclass(frozen=True)
class Integers(Dense):
    """The I64 format."""

    tag: str = "I64"
    bare: bool = True

    slice_rule = "not kept in memory"

    def _packed(self, shape: Shape, dims: tuple[Along, ...]) -> PackedArray:
        return PackedArray("", self.tag, np.dtype(np.int64), shape, dims, resident=False)
