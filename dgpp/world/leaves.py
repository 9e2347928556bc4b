"""What ranks exchange in a layer, and the two worlds that live in one process.

A row-parallel product is four partial products, each rounded once to bf16, added as (q0 + q1) + (q2 + q3) in float32
with one final rounding. World 1 computes all four, world 2 two per rank, world 4 one per rank; what crosses between
ranks is always the bf16 leaves, and every rank adds them in the same tree, so all worlds give the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import jax
import jax.numpy as jnp


class World(Protocol):
    """The ranks a forward runs on, as one rank sees them."""

    @property
    def size(self) -> int:
        """Number of ranks: 1, 2 or 4."""

    def leaves(self, own: jax.Array) -> jax.Array:
        """All four leaves [4, R, D], the same on every rank, from this rank's own [4/W, R, D]; those that came from
        elsewhere are rounded to bf16. `dgpp.kernels.leaves` adds them."""

    def gather(self, x: jax.Array, sizes: Sequence[int]) -> jax.Array:
        """[R, sum(sizes)] from the ranks' padded leaves: `x` is [R, 4/W * padded], leaf i holds `sizes[i]` values."""


@dataclass(frozen=True)
class Single:
    """One rank on one device."""

    size: int = 1

    def leaves(self, own: jax.Array) -> jax.Array:
        """The rank's own."""
        return own

    def gather(self, x: jax.Array, sizes: Sequence[int]) -> jax.Array:
        """`x` itself: world 1 holds the tensor as published."""
        return x


@dataclass(frozen=True)
class Mesh:
    """One process, `size` devices: the forward runs inside `shard_map` over the mesh axis `axis`."""

    size: int
    axis: str = "rank"

    def leaves(self, own: jax.Array) -> jax.Array:
        """An all-gather of the leaves in bf16: never a `psum`, whose order is not ours."""
        stored = jax.lax.reduce_precision(own, 8, 7).astype(jnp.bfloat16)
        return jax.lax.all_gather(stored, self.axis).reshape(4, *own.shape[1:])

    def gather(self, x: jax.Array, sizes: Sequence[int]) -> jax.Array:
        """An all-gather of the padded leaves, with the padding cut away."""
        gathered = jax.lax.all_gather(x, self.axis)  # [W, R, 4/W * padded]
        per_rank = len(sizes) // self.size
        padded = x.shape[1] // per_rank
        parts = gathered.reshape(self.size, x.shape[0], per_rank, padded)
        return jnp.concatenate([parts[i // per_rank, :, i % per_rank, :size] for i, size in enumerate(sizes)], axis=1)
