"""Spec E-8 once more, over Python lists and without prefixes: what the sampler must agree with bit for bit."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dgpp.engine.request import Sampling

f32 = np.float32
LN2_HIGH, LN2_LOW = Fraction(6.93147180369123816490e-01), Fraction(1.90821492927058770002e-10)


@lru_cache(100_000)
def exp(x: float) -> float:
    """E-8.10 with exact rationals rounded where the spec rounds."""
    if x > 709.78 or x < -745.13:
        return math.inf if x > 0 else 0.0
    k = int((x * 1.4426950408889634 + 1.5 * 2.0**52) - 1.5 * 2.0**52)
    r = Fraction(float(float(Fraction(x) - k * LN2_HIGH) - k * LN2_LOW))
    p = 1 / math.factorial(13)
    for n in range(12, -1, -1):
        p = float(Fraction(p) * r + Fraction(1 / math.factorial(n)))
    return float(Fraction(p) * Fraction(2) ** k)


def log(x: float) -> float:
    """E-8.10 with exact rationals rounded where the spec rounds."""
    m, e = math.frexp(x)
    if m < math.sqrt(0.5):
        m, e = 2 * m, e - 1
    s = (m - 1) / (m + 1)
    z = Fraction(s * s)
    q = 1 / 21
    for n in (19, 17, 15, 13, 11, 9, 7, 5, 3, 1):
        q = float(Fraction(q) * z + Fraction(1 / n))
    return float(float(Fraction(2 * s * q) + e * LN2_HIGH) + e * LN2_LOW)


def nearest_f32(exact: Fraction) -> np.float32:
    """`exact` rounded once to float32, ties to even, by comparing the neighbours."""
    guess = f32(float(exact))
    around = [np.nextafter(guess, f32(-np.inf)), guess, np.nextafter(guess, f32(np.inf))]
    near = min(abs(Fraction(float(v)) - exact) for v in around)
    best = [v for v in around if abs(Fraction(float(v)) - exact) == near]
    return best[0] if len(best) == 1 else next(v for v in best if int(v.view(np.int32)) % 2 == 0)


def halved(terms: list[float]) -> float:
    """E-8.6: t[i] += t[i + h], in place."""
    t, h = list(terms), len(terms) // 2
    while h:
        for i in range(h):
            t[i] += t[i + h]
        h //= 2
    return t[0]


def slice_normaliser(values: list[float]) -> float:
    """E-8.6 for one slice."""
    peak = max(values, default=-math.inf)
    if peak == -math.inf:
        return peak
    terms = [exp(v - peak) if v > -math.inf else 0.0 for v in values]
    chunks = [terms[i : i + 256] for i in range(0, len(terms), 256)]
    partials = [halved(chunk + [0.0] * (256 - len(chunk))) for chunk in chunks]
    size = 1
    while size < len(partials):
        size *= 2
    return peak + log(halved(partials + [0.0] * (size - len(partials))))


def normaliser(values: list[float]) -> float:
    """E-8.6 over the four slices of E-2.6."""
    n = len(values)
    slices = [slice_normaliser(values[n * r // 4 : n * (r + 1) // 4]) for r in range(4)]
    peak, total = max(slices), 0.0
    for value in slices:
        total += exp(value - peak) if value > -math.inf else 0.0
    return peak + log(total)


def select(scaled: list[np.float32], min_p: np.float32, top_p: np.float32, u: float) -> tuple[int, list[int], float]:
    """E-8.5: (chosen place, kept places, normaliser)."""
    e = [f32(exp(float(s - scaled[0]))) for s in scaled]
    den = f32(0)
    for value in e:
        den = den + value
    kept = [i for i in range(len(e)) if e[i] / den >= min_p * (e[0] / den)]
    if top_p < 1:
        total, nucleus = f32(0), []
        for i in kept:
            nucleus.append(i)
            total = total + e[i] / den
            if total >= top_p:
                break
        kept = nucleus
    final = f32(0)
    for i in kept:
        final = final + e[i]
    cum, last = 0.0, -1
    for i in kept:
        quotient = float(e[i] / final)
        cum += quotient
        last = i if quotient else last
        if cum > u:
            break
    return last, kept, float(scaled[0] + f32(log(float(final))))


def draw(
    logits: np.ndarray, sampling: Sampling, u: float
) -> tuple[int, dict[int, np.float32], list[tuple[int, np.float32]]]:
    """(token, log-probability of every kept id, the same as a canonical list) at T > 0, over the whole vocabulary."""
    ids = sorted((i for i in range(len(logits)) if logits[i] > -np.inf), key=lambda i: (-float(logits[i]), i))
    t, top_p, min_p = f32(sampling.temperature), f32(sampling.top_p), f32(sampling.min_p)
    scaled = [logits[i] / t for i in ids]
    if sampling.top_k:
        chosen, kept, total = select(scaled[: sampling.top_k], min_p, top_p, u)
    elif min_p > 0:
        bound = scaled[0] + f32(log(float(min_p)))
        count = next((i for i, s in enumerate(scaled) if s < bound), len(scaled))
        chosen, kept, total = select(scaled[:count], min_p, top_p, u)
    else:
        total = normaliser([float(v / t) for v in logits])
        masses = [exp(float(s) - total) for s in scaled]
        chosen, cum, count = -1, 0.0, len(masses)
        for i, mass in enumerate(masses):
            cum += mass
            if top_p < 1 and cum >= float(top_p):  # float32 is exact in float64, the reverse rounds cum
                count = i + 1
                break
            chosen = i if mass else chosen
            if top_p == 1 and cum > u:
                break
        kept = list(range(len(masses)))
        if top_p < 1:
            chosen, kept, total = select(scaled[:count], f32(0), f32(1), u)
    listed = [(ids[i], f32(float(scaled[i]) - total)) for i in kept]
    return ids[chosen], dict(listed), listed
