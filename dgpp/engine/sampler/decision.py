"""What a prefix of the canonical order decides, exactly, and when it does not reach far enough (spec E-8.7)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dgpp.engine.request import Sampling
from dgpp.engine.sampler.det_math import exp_array, log_f
from dgpp.engine.sampler.normaliser import Total
from dgpp.engine.sampler.selector import Selection, drawn, reaching, running_sum, select

ONE, ZERO = np.float32(1), np.float32(0)
SLACK = 1e-9


@dataclass(frozen=True)
class Filters:
    """The settings of a draw as float32 numbers."""

    temperature: np.float32
    top_k: int
    top_p: np.float32
    min_p: np.float32

    @classmethod
    def of(cls, sampling: Sampling) -> Filters:
        """Those of a request."""
        as_f32 = np.float32
        return cls(as_f32(sampling.temperature), sampling.top_k, as_f32(sampling.top_p), as_f32(sampling.min_p))


def decide(
    scaled: np.ndarray, present: int, filters: Filters, normaliser: Total, u: float, logprobs: int | None
) -> Selection | None:
    """The draw over all `present` ids, from the first of them in canonical order; None when those do not settle it.

    `scaled` float32 [N] = logit / temperature of the first N ids; `normaliser` is that of all present ids; `u` is the
    draw, the same in every attempt; `logprobs` is how many alternatives are to be listed. Any two prefixes that settle
    the draw give the same result. The first rule that applies decides:

    top_k: the first min(top_k, present) candidates, through the selector with min_p and top_p.
    min_p: the candidates before the first with scaled_i < scaled_0 + log_f(min_p), through the selector with min_p and
    top_p; there top_p is a share of the mass that this bound leaves.
    top_p < 1: candidates until the running sum of their masses reaches top_p, through the selector without filters.
    Otherwise: the first whose running sum of masses exceeds u, or the last with mass when all are held.

    The masses are exp(scaled_i - normaliser), their sums are in float64.
    """
    complete = len(scaled) == present
    if filters.top_k:
        needed = min(filters.top_k, present)
        if len(scaled) < needed:
            return None
        return select(scaled[:needed], min_p=filters.min_p, top_p=filters.top_p, u=u)
    if filters.min_p > 0:
        below = scaled < scaled[0] + log_f(filters.min_p)
        if not below.any() and not complete:
            return None
        bound = int(np.argmax(below)) if below.any() else present
        return select(scaled[:bound], min_p=filters.min_p, top_p=filters.top_p, u=u)
    if filters.top_p < 1:
        masses = _masses(scaled, normaliser, float(filters.top_p))
        sums = running_sum(masses)
        if sums[-1] < filters.top_p and not complete:
            return None
        return select(scaled[: reaching(sums, filters.top_p)], min_p=ZERO, top_p=ONE, u=u)
    masses = _masses(scaled, normaliser, u)
    listed = min(logprobs or 0, present)
    if not complete and (running_sum(masses)[-1] <= u or listed > len(scaled)):
        return None
    total = normaliser.near if logprobs is None else normaliser.exact
    return Selection(drawn(masses, u), np.arange(len(scaled)), total)


def _masses(scaled: np.ndarray, normaliser: Total, mark: float) -> np.ndarray:
    """Masses float64 [N] whose running sums compare with `mark` as those of the exact masses do.

    Those of the machine's own exp serve where no running sum comes near the mark: their sums are off by less than
    1e-10 and one ulp of the normaliser. That spares nearly every draw the exact normaliser, its greatest cost.
    """
    near = np.exp(scaled.astype(np.float64) - normaliser.near)
    if np.abs(running_sum(near) - mark).min() > SLACK + 2 * math.ulp(normaliser.near):
        return near
    return exp_array(scaled.astype(np.float64) - normaliser.exact)
