"""`dgpp.kernels.pick.likeliest` on the host, from the parts of the host's sampler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from dgpp.checkpoint.spec import even_ranges
from dgpp.engine.sampler.normaliser import slice_terms
from dgpp.engine.sampler.prefix import Prefix, scale
from dgpp.kernels.pick import CHUNK, WIDTH, Likeliest


def likeliest_of(logits: np.ndarray, temperature: np.ndarray, width: int = WIDTH) -> Likeliest:
    """That of logits float32 [B, V] without NaN, with `width` ids."""
    rows, v = logits.shape
    slices = even_ranges(v)
    chunks = max(-(-(end - start) // CHUNK) for start, end in slices)
    found = Likeliest(
        np.zeros((rows, width), np.int32),
        np.full((rows, width), -np.inf, np.float32),
        np.zeros(rows, np.int32),
        np.zeros((rows, len(slices)), np.float32),
        np.zeros((rows, len(slices), chunks, 2), np.int32),
    )
    for row, values in enumerate(logits):
        prefix = Prefix.of(values, width)
        found.ids[row, : len(prefix.ids)], found.logits[row, : len(prefix.ids)] = prefix.ids, prefix.logits
        found.present[row] = prefix.present
        for part, (start, end) in enumerate(slices):
            found.peaks[row, part] = values[start:end].max(initial=-np.inf)
            sums = slice_terms(scale(values[start:end], temperature[row]))
            found.partials[row, part, : len(sums)] = sums.view(np.int32).reshape(-1, 2)
    return found


def likeliest(logits: jax.Array, temperature: jax.Array, slices: Sequence[tuple[int, int]]) -> Any:
    """The same inside a compiled function, for `Kernels.likeliest`."""
    assert tuple(slices) == even_ranges(logits.shape[1])
    like = likeliest_of(np.zeros(logits.shape, np.float32), np.ones(len(logits), np.float32))
    shapes = Likeliest(*(jax.ShapeDtypeStruct(part.shape, part.dtype) for part in like))
    return jax.pure_callback(lambda x, t: likeliest_of(np.asarray(x), np.asarray(t)), shapes, logits, temperature)
