"""Float32 arithmetic whose bits do not depend on who compiles it: a rounded product, a division, and exp.

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
