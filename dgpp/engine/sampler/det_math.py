"""exp and log in float64 whose bits depend on IEEE 754 alone: no libm, no contraction (spec E-8.10).

exp(x): x is cut at 709.78 (above: inf) and -745.13 (below: 0). k = x * (1/ln 2), rounded, then to an integer with
ties to even by adding and subtracting 1.5 * 2^52. r = fma(-k, LN2_LOW, fma(-k, LN2_HIGH, x)). The Taylor polynomial of
e^r of degree 13 by Horner's rule, every step an fma, from coefficients 1/n! rounded to float64. Then p * 2^k, rounded
once.

log(x): x = m * 2^e with m in [sqrt(1/2), sqrt(2)), s = (m - 1) / (m + 1), z = s * s. q = 1/21, then q = fma(q, z, 1/n)
for n = 19, 17, ..., 1. The result is fma(e, LN2_LOW, fma(e, LN2_HIGH, 2 * s * q)).

The spec leaves open how x/ln 2 is computed and how log adds e * ln 2; this file fixes both, in agreement with the
spec's vectors. The errors are below 1 ulp (exp) and 2 ulp (log), and neither is promised to be monotonic in the last
bit.
"""

from __future__ import annotations

import math

import numpy as np

from dgpp.engine.sampler.fma import fma
from dgpp.kernels.pick.exponential import HIGHEST, INVERSE_LN2, LN2_HIGH, LN2_LOW, LOWEST, SHIFT, TAYLOR

SQRT_HALF = math.sqrt(0.5)
ATANH_DEGREE = 21

BLOCK = 16384  # elements whose temporaries stay in the cache of a core
_HIGH_26 = np.int64(-(1 << 27))  # keeps 26 significant bits of a float64
_HIGH_41 = np.int64(-(1 << 12))  # keeps 41, so that the product with any |k| < 2^11 is exact
_LOW_HEAD = float((np.array(LN2_LOW).view(np.int64) & _HIGH_41).view(np.float64))
_LOW_TAIL = LN2_LOW - _LOW_HEAD


def exp(x: float) -> float:
    """e^x. NaN gives NaN."""
    if math.isnan(x):
        return x
    if x > HIGHEST:
        return math.inf
    if x < LOWEST:
        return 0.0
    k = (x * INVERSE_LN2 + SHIFT) - SHIFT
    r = fma(-k, LN2_LOW, fma(-k, LN2_HIGH, x))
    p = TAYLOR[-1]
    for c in TAYLOR[-2::-1]:
        p = fma(p, r, c)
    return math.ldexp(p, int(k))


def log(x: float) -> float:
    """The natural logarithm of a finite x > 0. Raises ValueError for any other x."""
    if not 0 < x < math.inf:
        raise ValueError(f"log needs a finite positive number, got {x}")
    m, e = math.frexp(x)
    if m < SQRT_HALF:
        m, e = 2 * m, e - 1
    s = (m - 1) / (m + 1)
    z = s * s
    q = 1 / ATANH_DEGREE
    for n in range(ATANH_DEGREE - 2, 0, -2):
        q = fma(q, z, 1 / n)
    return fma(e, LN2_LOW, fma(e, LN2_HIGH, 2 * s * q))


def exp_array(x: np.ndarray) -> np.ndarray:
    """e^x of float64 [N] without NaN, as float64 [N]: the bits of `exp` for every element.

    An fma of the polynomial runs on whole arrays, as a sum of unrounded parts with a bound on what the parts leave
    out. Where both ends of that bound round to the same float64, that is the fma's result. Elements where they differ
    at any step (about one in 100,000) are computed by `exp`.
    """
    result = np.empty(x.shape, np.float64)
    with np.errstate(under="ignore"):
        for start in range(0, len(x), BLOCK):
            part = slice(start, start + BLOCK)
            _exp_block(x[part], result[part])
    return result


def exp_f(x: np.ndarray) -> np.ndarray:
    """e^x of float32 [N], evaluated in float64 and rounded once to float32 [N]."""
    with np.errstate(under="ignore", over="ignore"):
        return exp_array(x.astype(np.float64)).astype(np.float32)


def log_f(x: np.float32) -> np.float32:
    """The natural logarithm of a finite x > 0, evaluated in float64 and rounded once to float32."""
    return np.float32(log(float(x)))


def _exp_block(x: np.ndarray, out: np.ndarray) -> None:
    """Writes e^x to `out`, both float64 [N]."""
    clipped = np.clip(x, LOWEST, HIGHEST)
    k = (clipped * INVERSE_LN2 + SHIFT) - SHIFT
    p, doubtful = _polynomial(_reduce(clipped, k))
    np.ldexp(p, k.astype(np.int32), out=out)
    if doubtful.any():
        again, where = np.unique(clipped[doubtful], return_inverse=True)
        out[doubtful] = np.array([exp(value) for value in again.tolist()])[where]
    out[x < LOWEST] = 0
    out[x > HIGHEST] = np.inf


def _reduce(x: np.ndarray, k: np.ndarray) -> np.ndarray:
    """r float64 [N] = x - k * ln 2 by the two fmas of the reduction.

    k * LN2_HIGH is exact, so the first fma is a difference. Of k * LN2_LOW both parts are exact. `rest` is what their
    sum with the first result loses: a multiple of 2^-85 (the last bit of LN2_LOW) below 2^-54, so it is exact, and the
    last addition is the only rounding of the second fma. Where k = 0, r is x.
    """
    first = x - k * LN2_HIGH
    head = k * -_LOW_HEAD
    total = first + head
    part = total - first
    rest = (first - (total - part)) + (head - part) - k * _LOW_TAIL
    return total + rest


def _polynomial(r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(p float64 [N], bool [N] where a rounding is in doubt): the Taylor polynomial at |r| <= 0.35.

    A step's exact p * r + c is c + ph * rh + (ph * rl + pl * r), where p = ph + pl and r = rh + rl cut off 26 bits.
    ph * rh is exact. Its sum with c has the exact error t (Dekker's fast two-sum: |p * r| < c / 2). The two small
    products, their sum and the sum with t are rounded, each from below 2^-24 |p * r| + 2^-53 c: together they are off
    by less than 2^-75 c, and 2^-74 c is the bound taken.
    """
    rh = (r.view(np.int64) & _HIGH_26).view(np.float64)
    rl = r - rh
    p = np.full_like(r, TAYLOR[-1])
    head, low, total, rest = (np.empty_like(r) for _ in range(4))
    differs, doubtful = np.empty(r.shape, bool), np.zeros(r.shape, bool)
    for c in TAYLOR[-2::-1]:
        np.bitwise_and(p.view(np.int64), _HIGH_26, out=head.view(np.int64))
        np.subtract(p, head, out=low)
        low *= r
        np.multiply(head, rl, out=rest)
        rest += low
        head *= rh
        np.add(head, c, out=total)
        np.subtract(total, c, out=low)
        np.subtract(head, low, out=low)
        rest += low
        np.subtract(rest, c * 2.0**-74, out=low)
        rest += c * 2.0**-74
        np.add(total, rest, out=p)
        total += low
        np.not_equal(p, total, out=differs)
        doubtful |= differs
    return p, doubtful
