"""likeliest on a GPU: what an exact sampler needs, in a few kilobytes a row."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.kernels.gpu.launch import Out, launch
from dgpp.kernels.pick import CHUNK, WIDTH, Likeliest
from dgpp.kernels.pick.triton_best import best_of_chunk
from dgpp.kernels.pick.triton_terms import chunk_terms

SPAN = 2048  # keys that one program sorts
WARPS = 8


def likeliest(logits: jax.Array, temperature: jax.Array, slices: Sequence[tuple[int, int]]) -> Likeliest:
    """As in `dgpp.kernels.pick`."""
    rows, v = logits.shape
    high = jax.lax.bitcast_convert_type(logits, jnp.int32)
    low, first = high, True
    while first or high.shape[1] > WIDTH:
        n = high.shape[1]
        chunks = -(-n // SPAN)
        out = Out((rows, chunks, WIDTH), jnp.int32)
        constants = {"N": n, "CHUNKS": chunks, "SPAN": SPAN, "FIRST": first}
        best = launch(best_of_chunk, (high, low), (out, out), (rows, chunks), constants, warps=WARPS, stages=1)
        high, low = (words.reshape(rows, chunks * WIDTH) for words in best)
        first = False
    bits = jnp.where(high < 0, high ^ 0x7FFFFFFF, high)
    peaks = jnp.stack([logits[:, start:end].max(axis=-1, initial=-jnp.inf) for start, end in slices], axis=-1)
    chunks = max(-(-(end - start) // CHUNK) for start, end in slices)
    (partials,) = launch(
        chunk_terms,
        (logits, temperature, peaks, jnp.asarray(np.array(slices, np.int32))),
        (Out((rows, len(slices), chunks, 2), jnp.int32),),
        (rows, len(slices), chunks),
        {"V": v, "SLICES": len(slices), "CHUNKS": chunks},
        warps=1,
        stages=1,
    )
    present = jnp.sum(logits > -jnp.inf, axis=-1, dtype=jnp.int32)
    return Likeliest(low, jax.lax.bitcast_convert_type(bits, jnp.float32), present, peaks, partials)
