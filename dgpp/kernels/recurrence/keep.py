"""What is left to do when the gated delta rule has been computed: rows that do not commit go into the rings.

The rings' old rows must have been read, so it is done by a kernel that runs later: one of its own, or the next one.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax

from dgpp.kernels.gpu.launch import Out, launch
from dgpp.kernels.recurrence.triton_keep import keep_inputs

WARPS = 8


@dataclass(frozen=True)
class Keep:
    """The arguments of `triton_keep.keep_row`."""

    fresh: tuple[jax.Array, ...]  # k, v, g, beta, layer, position, slot, commits, last, used
    rings: tuple[jax.Array, ...]  # k, v, gates
    constants: dict[str, int]

    def outs(self, first: int) -> tuple[Out, ...]:
        """The rings as outputs of a kernel whose argument number `first` is the first of them."""
        return tuple(Out(ring.shape, ring.dtype, alias=first + i) for i, ring in enumerate(self.rings))

    def alone(self, read: jax.Array) -> tuple[jax.Array, ...]:
        """The rings with the rows put in; `read` is what was computed from their old rows."""
        arguments = (*self.fresh, *self.rings, read)
        outs, rows = self.outs(len(self.fresh)), self.fresh[0].shape[0]
        return launch(keep_inputs, arguments, outs, (rows,), self.constants, warps=WARPS, stages=1)
