"""The residual stream between two blocks: the norm that reads it also adds what the block before it has to add."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jax

from dgpp.formats import Weight
from dgpp.kernels import Kernels
from dgpp.kernels.leaves import folded
from dgpp.kernels.linear.fed import Feed
from dgpp.kernels.rows import Rows
from dgpp.kernels.stored import add_bf16


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Residual:
    """h + the fold of `leaves`, not yet added: bf16 [R, D] and the four leaves [4, R, D] of a block's output."""

    h: jax.Array
    leaves: jax.Array


def settled(stream: jax.Array | Residual) -> jax.Array:
    """The stream as rows, bf16 [R, D]."""
    return add_bf16(stream.h, folded(stream.leaves)) if isinstance(stream, Residual) else stream


def normed_stream(
    stream: jax.Array | Residual,
    w: Weight,
    layer: jax.Array,
    eps: float,
    rows: Rows,
    kernels: Kernels,
    *,
    centred: bool,
    readers: Iterable[Weight] = (),
) -> tuple[jax.Array, Any]:
    """(the stream as rows, its RMSNorm), both bf16 [R, D]; `readers` are the matrices that will read the norm."""
    feeds = [Feed(reader) for reader in readers]
    if isinstance(stream, Residual):
        h, x = kernels.added_normed(stream.h, stream.leaves, w, layer, eps, rows, centred=centred, feeds=feeds)
        return h, x
    return stream, kernels.normed(stream, w, layer, eps, rows, centred=centred, feeds=feeds)
