"""Float32 arithmetic whose bits do not depend on who compiles it: a rounded product, a division, exp, log and kin.

XLA contracts `a * b + c` into one fused operation whenever it likes. Where the product is exact this changes nothing;
where it is not, the product has to be rounded first, everywhere, or NumPy, XLA and our own kernels part ways.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# The constants of expf in the Cephes mathematical library (Moshier, single precision, file expf.c): log2(e), ln(2) cut
# into a part whose product with any exponent is exact and a rest, and a minimax polynomial of e^r for |r| <= ln(2)/2.
LOG2E = 1.44269504
LN2_HIGH = 0.693359375
LN2_LOW = -2.12194440e-4
POLYNOMIAL = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
LOWEST = -87.33654  # e^x is below the smallest normal float32 under it
HIGHEST = 88.37626  # 2^128 lies above it
SHIFT = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer, which is then the low bits of the sum

# Those of logf (file logf.c): sqrt(1/2), and a minimax polynomial of (log(1 + r) - r + r^2/2) / r^3 for a mantissa
# 1 + r between sqrt(1/2) and sqrt(2).
SQRT_HALF = 0.707106781186547524
LOG_POLYNOMIAL = (
    7.0376836292e-2,
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
    3.3333331174e-1,
)
TINY = float(np.finfo(np.float32).tiny)
LINEAR_FROM = 20.0  # softplus(x) is x above it: e^-20 is less than half a unit in the last place of 20
SIGMOID_ZERO = -87.0  # below it, 1 / (1 + e^-x) is about to become subnormal


def rounded(value: jax.Array, zero: jax.Array) -> jax.Array:
    """`value` (float32), in a form that no compiler may fuse into an addition that follows.

    `zero` is an int32 0 known only at run time (an argument of the jitted function): a bitwise XOR with it keeps the
    bits, and the compiler has to produce them. A constant, a barrier or a bitcast alone does not stop the contraction.
    """
    return lax.bitcast_convert_type(lax.bitcast_convert_type(value, jnp.int32) ^ zero, jnp.float32)


def divided(a: jax.Array, b: jax.Array) -> jax.Array:
    """`a / b` in float32, correctly rounded, where `b` is broadcast to the shape of `a`.

    XLA turns the division by a broadcast value into a product with its reciprocal, so the broadcast is hidden from it.
    """
    return a / lax.optimization_barrier(jnp.broadcast_to(b, a.shape))


def exp_f32(x: jax.Array, zero: jax.Array) -> jax.Array:
    """e^x in float32, the same bits as `exp_f32_numpy` and the native kernels; `zero` as in `rounded`.

    At most 1 ulp from the true value. Below -87.33654 (so at -inf) the result is 0: it is never subnormal. Above
    88.37626 it is e^88.37626. NaN gives NaN.
    """
    clamped = jnp.where(x > HIGHEST, jnp.float32(HIGHEST), x)
    shifted = rounded(clamped * jnp.float32(LOG2E), zero) + jnp.float32(SHIFT)
    k = rounded(shifted, zero) - jnp.float32(SHIFT)
    r = clamped - k * jnp.float32(LN2_HIGH)
    r = r - rounded(k * jnp.float32(LN2_LOW), zero)
    p = jnp.full_like(r, POLYNOMIAL[0])
    for c in POLYNOMIAL[1:]:
        p = rounded(p * r, zero) + jnp.float32(c)
    y = (rounded(p * (r * r), zero) + r) + jnp.float32(1)
    # The low bits of `shifted` are the integer k; everything above them leaves the word in the shift to the exponent.
    power = lax.bitcast_convert_type((lax.bitcast_convert_type(shifted, jnp.int32) + 127) << 23, jnp.float32)
    return jnp.where(x < LOWEST, jnp.float32(0), y * power)


def exp_f32_numpy(x: np.ndarray) -> np.ndarray:
    """e^x of float32 `x` in NumPy: the same operations in the same order as `exp_f32`, the same bits."""
    f32 = np.float32
    with np.errstate(invalid="ignore", over="ignore"):
        clamped = np.where(x > f32(HIGHEST), f32(HIGHEST), x)
        shifted = clamped * f32(LOG2E) + f32(SHIFT)
        k = shifted - f32(SHIFT)
        r = clamped - k * f32(LN2_HIGH)
        r = r - k * f32(LN2_LOW)
        p = np.full_like(r, POLYNOMIAL[0])
        for c in POLYNOMIAL[1:]:
            p = p * r + f32(c)
        y = (p * (r * r) + r) + f32(1)
        power = ((shifted.view(np.int32) + np.int32(127)) << np.int32(23)).view(np.float32)
        return np.where(x < f32(LOWEST), f32(0), y * power)


def log_f32(x: jax.Array, zero: jax.Array) -> jax.Array:
    """ln(x) in float32, the same bits as `log_f32_numpy`; within 1 ulp. `zero` as in `rounded`.

    +-0 and subnormal values give -inf, +inf gives +inf, values below zero and NaN give NaN.
    """
    bits = lax.bitcast_convert_type(x, jnp.int32)
    exponent = (bits >> 23) - 126
    mantissa = lax.bitcast_convert_type((bits & 0x7FFFFF) | 0x3F000000, jnp.float32)  # [1/2, 1)
    low = mantissa < jnp.float32(SQRT_HALF)
    e = (exponent - low).astype(jnp.float32)
    r = jnp.where(low, mantissa + mantissa, mantissa) - jnp.float32(1)
    square = rounded(r * r, zero)
    p = jnp.full_like(r, LOG_POLYNOMIAL[0])
    for c in LOG_POLYNOMIAL[1:]:
        p = rounded(p * r, zero) + jnp.float32(c)
    y = rounded(rounded(p * r, zero) * square, zero) + rounded(e * jnp.float32(LN2_LOW), zero)
    y = r + (y - jnp.float32(0.5) * square)
    y = y + e * jnp.float32(LN2_HIGH)
    y = jnp.where(x == jnp.inf, jnp.float32(jnp.inf), y)
    return jnp.where(jnp.abs(x) < TINY, -jnp.float32(jnp.inf), jnp.where(x >= 0, y, jnp.float32(jnp.nan)))


def log_f32_numpy(x: np.ndarray) -> np.ndarray:
    """ln(x) of float32 `x` in NumPy: the same operations in the same order as `log_f32`, the same bits."""
    f32 = np.float32
    x = np.asarray(x, f32)
    bits = x.view(np.int32)
    exponent = (bits >> np.int32(23)) - np.int32(126)
    mantissa = ((bits & np.int32(0x7FFFFF)) | np.int32(0x3F000000)).view(f32)
    low = mantissa < f32(SQRT_HALF)
    e = (exponent - low).astype(f32)
    r = np.where(low, mantissa + mantissa, mantissa) - f32(1)
    square = r * r
    p = np.full_like(r, LOG_POLYNOMIAL[0])
    for c in LOG_POLYNOMIAL[1:]:
        p = p * r + f32(c)
    y = p * r * square + e * f32(LN2_LOW)
    y = r + (y - f32(0.5) * square)
    y = y + e * f32(LN2_HIGH)
    y = np.where(x == np.inf, f32(np.inf), y)
    return np.where(np.abs(x) < f32(TINY), f32(-np.inf), np.where(x >= 0, y, f32(np.nan)))


def log1p_f32(x: jax.Array, zero: jax.Array) -> jax.Array:
    """ln(1 + x) for float32 x >= 0, the same bits as `log1p_f32_numpy`; within 3 ulp. `zero` as in `rounded`.

    With u = fl(1 + x), ln(u) * (x / (u - 1)) makes up for what the addition lost (Kahan).
    """
    u = rounded(jnp.float32(1) + x, zero)
    lost = rounded(u - jnp.float32(1), zero)
    ratio = x / jnp.where(lost == 0, jnp.float32(1), lost)
    return jnp.where((lost == 0) | (u == jnp.inf), x, log_f32(u, zero) * ratio)


def log1p_f32_numpy(x: np.ndarray) -> np.ndarray:
    """ln(1 + x) of float32 `x` in NumPy: the same operations in the same order as `log1p_f32`, the same bits."""
    f32 = np.float32
    x = np.asarray(x, f32)
    u = f32(1) + x
    with np.errstate(invalid="ignore"):
        lost = u - f32(1)
        ratio = x / np.where(lost == 0, f32(1), lost)
        return np.where((lost == 0) | (u == np.inf), x, log_f32_numpy(u) * ratio)


def softplus_f32(x: jax.Array, zero: jax.Array) -> jax.Array:
    """ln(1 + e^x) in float32, and x itself above 20; the same bits as `softplus_f32_numpy`. `zero` as in `rounded`."""
    below = log1p_f32(exp_f32(jnp.minimum(x, jnp.float32(LINEAR_FROM)), zero), zero)
    return jnp.where(x > LINEAR_FROM, x, below)


def softplus_f32_numpy(x: np.ndarray) -> np.ndarray:
    """ln(1 + e^x) in NumPy: the same operations in the same order as `softplus_f32`, the same bits."""
    x = np.asarray(x, np.float32)
    below = log1p_f32_numpy(exp_f32_numpy(np.minimum(x, np.float32(LINEAR_FROM))))
    return np.where(x > np.float32(LINEAR_FROM), x, below)


def sigmoid_f32(x: jax.Array, zero: jax.Array) -> jax.Array:
    """1 / (1 + e^-x) in float32, the same bits as `sigmoid_f32_numpy`; `zero` as in `rounded`.

    Below -87 the result is 0: it is never subnormal.
    """
    return jnp.where(x < SIGMOID_ZERO, jnp.float32(0), jnp.float32(1) / (jnp.float32(1) + exp_f32(-x, zero)))


def sigmoid_f32_numpy(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x) in NumPy: the same operations in the same order as `sigmoid_f32`, the same bits."""
    x = np.asarray(x, np.float32)
    return np.where(x < np.float32(SIGMOID_ZERO), np.float32(0), np.float32(1) / (np.float32(1) + exp_f32_numpy(-x)))
