"""A sum over K in parts: what a kernel leaves of it, and how it is finished."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp


def summed(parts: jax.Array) -> jax.Array:
    """float32 [R, N]: the parts [P, R, N] of a product, added in ascending order."""
    first, *others = parts
    return functools.reduce(jnp.add, others, first)


def shares(steps: int, count: int) -> list[tuple[int, int]]:
    """(start, stop) of the parts of a sum over all of K: `count` at most, of equal length but for the last."""
    length = -(-steps // count)
    return [(start, min(start + length, steps)) for start in range(0, steps, length)]
