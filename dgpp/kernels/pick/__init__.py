"""pick: what the choice of a token needs of logits, so that they can stay on the device.

    picks(logits) -> int32 [B]
    likeliest(logits, temperature, slices) -> Likeliest

logits float32 [B, V]. A pick is the first of the largest logits, the lower id among equals; -1 where a logit is not a
number. `likeliest` is what an exact sampler decides most draws from (`dgpp.engine.sampler`): the first 128 ids of the
canonical order, and the sums from which the host takes the normaliser at `temperature` float32 [B], above 0; `slices`
are the (start, end) that it is folded from. It exists where a kind has a kernel for it; elsewhere the host reads the
logits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

WIDTH = 128
"""Ids of the canonical order that leave the device."""

CHUNK = 256
"""Ids whose terms are added by halving before anything else is (spec E-8.6)."""


class Likeliest(NamedTuple):
    """Of each row the first ids in canonical order (logit descending, then id ascending, 0 equal to -0, NaN first), and
    the slices' sums of e^((logit - peak) / temperature)."""

    ids: Any  # int32 [B, 128]
    logits: Any  # float32 [B, 128], of these ids
    present: Any  # int32 [B]: ids of the row that are not at -inf; of the first only these count
    peaks: Any  # float32 [B, slices]: the largest logit of each slice
    partials: Any  # int32 [B, slices, chunks, 2]: float64 sums of CHUNK terms, low word first; 0 behind the end
