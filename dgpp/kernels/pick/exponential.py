"""The constants of e^x in float64 (spec E-8.10), for the host's sampler and for kernels."""

from __future__ import annotations

import math

LOWEST, HIGHEST = -745.13, 709.78
INVERSE_LN2 = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01  # its low bits are zero: the product with any |k| < 2^11 is exact
LN2_LOW = 1.90821492927058770002e-10
SHIFT = 1.5 * 2.0**52
TAYLOR = tuple(1 / math.factorial(n) for n in range(14))
