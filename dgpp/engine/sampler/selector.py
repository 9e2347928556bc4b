"""Filters and one draw over a canonical list of candidates, in float32 sums in list order (spec E-8.5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgpp.engine.sampler.det_math import exp_f, log_f


@dataclass(frozen=True)
class Selection:
    """The chosen candidate and the distribution it was drawn from. Log-probability of i: scaled[i] - normaliser."""

    chosen: int  # place in the list
    support: np.ndarray  # int64 [N]: places of the candidates that the filters kept, ascending
    normaliser: float


def select(scaled: np.ndarray, *, min_p: np.float32, top_p: np.float32, u: float) -> Selection:
    """One candidate of `scaled`: float32 [N] = logit / temperature, in canonical order, N >= 1, all finite.

    e_i = exp_f(scaled_i - scaled_0); den is their float32 sum from first to last. min_p keeps the i whose quotient
    e_i / den is at least min_p times that of the first. top_p then adds the kept quotients (of the same den) in
    float32 until the sum reaches it, and keeps the one that did; at 1 it cuts nothing. The e_i of what is left are
    summed again, and the draw takes the first whose float64 running sum of float32 quotients exceeds `u`, or, when
    rounding leaves `u` above them all, the last with mass. The normaliser is scaled_0 + log_f of the second sum.
    """
    with np.errstate(over="ignore"):  # a difference beyond float32 is -inf, whose exp is 0
        e = exp_f(scaled - scaled[0])
    quotients = e / running_sum(e)[-1]
    support = np.flatnonzero(quotients >= min_p * quotients[0])
    if top_p < 1:
        support = support[: reaching(running_sum(quotients[support]), top_p)]
    den = running_sum(e[support])[-1]
    chosen = int(support[drawn(e[support] / den, u)])
    return Selection(chosen, support, float(scaled[0] + log_f(den)))


def running_sum(values: np.ndarray) -> np.ndarray:
    """The sums of the first 1, 2, ..., N values [N], each rounded to their dtype: one addition after the other."""
    return np.add.accumulate(values, dtype=values.dtype)


def reaching(sums: np.ndarray, mass: float | np.floating) -> int:
    """How many elements it takes until the running sums [N] are at least `mass`; N when they never are."""
    reached = sums >= mass
    return int(np.argmax(reached)) + 1 if reached.any() else len(sums)


def drawn(masses: np.ndarray, u: float) -> int:
    """The first place whose float64 running sum of `masses` [N] exceeds `u`, else the last one with mass."""
    beyond = running_sum(masses.astype(np.float64)) > u
    return int(np.argmax(beyond)) if beyond.any() else int(np.flatnonzero(masses)[-1])
