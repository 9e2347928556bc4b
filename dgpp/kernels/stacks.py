"""Reading what is not multiplied by: norms, convolutions and gates of one layer of a stack."""

from __future__ import annotations

import jax

from dgpp.formats import Weight


def values_of(w: Weight, layer: jax.Array) -> jax.Array:
    """The values of layer number `layer`, of the logical shape; of a weight that is not stacked, all of them."""
    values: jax.Array = w.arrays["values"]
    return values[w.place(layer)] if values.ndim > len(w.shape) else values
