"""The logarithm of the sum of e^x over a vocabulary, in one fixed order of additions (spec E-8.6)."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from dgpp.checkpoint.spec import even_ranges
from dgpp.engine.sampler.det_math import exp, exp_array, log
from dgpp.engine.sampler.prefix import scale

CHUNK = 256


def halved(terms: np.ndarray) -> np.ndarray:
    """float64 [..., 2^n] to [...]: t[i] += t[i + h] for h = 2^(n-1), ..., 2, 1."""
    while terms.shape[-1] > 1:
        h = terms.shape[-1] // 2
        terms = terms[..., :h] + terms[..., h:]
    return terms[..., 0]


def slice_normaliser(scaled: np.ndarray) -> float:
    """log(sum(e^x)) of one slice, float32 [N] without NaN or +inf; -inf when no id of it is present.

    Terms are e^(x - max) in float64. Chunks of 256 ids, the last one padded with zeros, are summed by halving; so are
    the sums of the chunks, padded with zeros to a power of two.
    """
    peak = float(scaled.max(initial=-math.inf))
    if peak == -math.inf:
        return -math.inf
    chunks = -(-len(scaled) // CHUNK)
    terms = np.zeros(chunks * CHUNK)
    terms[: len(scaled)] = exp_array(scaled.astype(np.float64) - peak)
    partials = np.zeros(1 << (chunks - 1).bit_length())
    partials[:chunks] = halved(terms.reshape(chunks, CHUNK))
    return peak + log(float(halved(partials)))


def normaliser(scaled: np.ndarray) -> float:
    """log(sum(e^x)) of float32 [V] without NaN or +inf, with some finite element, as float64.

    The four vocabulary slices, whatever the number of ranks, are folded in ascending order about the largest of them.
    """
    slices = [slice_normaliser(scaled[start:stop]) for start, stop in even_ranges(len(scaled))]
    peak = max(slices)
    total = 0.0
    for value in slices:
        total += exp(value - peak)
    return peak + log(total)


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
        """The one that defines probabilities: the same bits everywhere."""
        return normaliser(self._scaled)

    @cached_property
    def near(self) -> float:
        """Within 1e-10 and one ulp of `exact`, and far cheaper: by NumPy's own exp and order of additions."""
        terms = self._scaled.astype(np.float64)
        peak = float(terms.max())
        terms -= peak
        return peak + math.log(float(np.exp(terms, out=terms).sum()))
