"""The logarithm of the sum of e^x over a vocabulary, in one fixed order of additions (spec E-8.6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from dgpp.checkpoint.spec import even_ranges
from dgpp.engine.sampler.det_math import exp, exp_array, log
from dgpp.engine.sampler.prefix import scale
from dgpp.kernels.pick import CHUNK


def halved(terms: np.ndarray) -> np.ndarray:
    """float64 [..., 2^n] to [...]: t[i] += t[i + h] for h = 2^(n-1), ..., 2, 1."""
    while terms.shape[-1] > 1:
        h = terms.shape[-1] // 2
        terms = terms[..., :h] + terms[..., h:]
    return terms[..., 0]


def slice_terms(scaled: np.ndarray) -> np.ndarray:
    """The sums float64 [chunks] of the terms e^(x - max) of one slice, float32 [N] without NaN or +inf, by chunks of
    256 ids: each is halved, the last one padded with zeros. Zeros when no id is present."""
    peak = float(scaled.max(initial=-math.inf))
    chunks = -(-len(scaled) // CHUNK)
    terms = np.zeros(chunks * CHUNK)
    if peak > -math.inf:
        terms[: len(scaled)] = exp_array(scaled.astype(np.float64) - peak)
    return halved(terms.reshape(chunks, CHUNK))


def slice_normaliser(scaled: np.ndarray) -> float:
    """log(sum(e^x)) of one slice, float32 [N] without NaN or +inf; -inf when no id of it is present."""
    return of_partials(float(scaled.max(initial=-math.inf)), slice_terms(scaled))


def of_partials(peak: float, partials: np.ndarray) -> float:
    """log(sum(e^x)) of one slice, from its largest x and what `slice_terms` gives of it, [chunks] or more with zeros
    behind; -inf when no id of it is present. The partials, padded with zeros to a power of two, are halved."""
    if peak == -math.inf:
        return -math.inf
    padded = np.zeros(1 << (len(partials) - 1).bit_length())
    padded[: len(partials)] = partials
    return peak + log(float(halved(padded)))


def normaliser(scaled: np.ndarray) -> float:
    """log(sum(e^x)) of float32 [V] without NaN or +inf, with some finite element, as float64.

    The four vocabulary slices, whatever the number of ranks, are folded in ascending order about the largest of them.
    """
    return folded([slice_normaliser(scaled[start:stop]) for start, stop in even_ranges(len(scaled))])


def folded(slices: Sequence[float]) -> float:
    """log(sum(e^x)) of slices with these ones, of which one is finite, added in order about the largest."""
    peak = max(slices)
    total = 0.0
    for value in slices:
        total += exp(value - peak)
    return peak + log(total)


class Total(Protocol):
    """The normaliser of all present ids: the one that defines probabilities, and one for comparisons."""

    @property
    def exact(self) -> float:
        """The same bits everywhere."""

    @property
    def near(self) -> float:
        """Within 1e-10 and one ulp of `exact`."""


class Normaliser:
    """The normaliser of float32 logits [V] divided by a temperature, computed when somebody asks.

    The logits hold no NaN and no +inf, and some finite one.
    """

    def __init__(self, logits: np.ndarray, temperature: np.float32) -> None:
        self._logits = logits
        self._temperature = temperature

    @cached_property
    def _scaled(self) -> np.ndarray:
        return scale(self._logits, self._temperature)

    @cached_property
    def exact(self) -> float:
        """The same bits everywhere."""
        return normaliser(self._scaled)

    @cached_property
    def near(self) -> float:
        """Within 1e-10 and one ulp of `exact`, and far cheaper: by NumPy's own exp and order of additions."""
        terms = self._scaled.astype(np.float64)
        peak = float(terms.max())
        terms -= peak
        return peak + math.log(float(np.exp(terms, out=terms).sum()))
