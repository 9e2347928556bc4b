"""Array code written once for NumPy and JAX: which library an array is of, bit casts, and two operations done exactly.

A codec or an operand is a definition, so it exists once; NumPy runs it as the truth and JAX inside a compiled step.
Everything here gives the same bits in both, but for float32 subnormals, which XLA counts as zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Array = Any
"""A NumPy or a JAX array."""
LONGEST_RHYTHM = 8
"""Layers after which a pattern of them is looked for to repeat."""


def library(*arrays: Array) -> Any:
    """`jax.numpy` if any of the arrays is of JAX, else `numpy`."""
    return jnp if any(isinstance(array, jax.Array) for array in arrays) else np


def bitcast(x: Array, dtype: Any) -> Array:
    """The bits of `x` as another dtype of the same width."""
    if isinstance(x, jax.Array):
        return lax.bitcast_convert_type(x, dtype)
    return np.asarray(x).view(dtype)


def as_bytes(x: Array) -> Array:
    """The bytes of integers [..., W], low byte first: uint8 [..., W * itemsize]."""
    if isinstance(x, jax.Array):
        if x.dtype.itemsize == 1:
            return lax.bitcast_convert_type(x, jnp.uint8)
        return lax.bitcast_convert_type(x, jnp.uint8).reshape(*x.shape[:-1], -1)
    return np.ascontiguousarray(x).view(np.uint8)


def lookup(table: np.ndarray, codes: Array) -> Array:
    """`table[codes]` for codes within the table."""
    lib = library(codes)
    return lib.take(lib.asarray(table), codes.astype(np.int32), mode="clip")


def place_among(numbers: Sequence[int], number: Array) -> Array:
    """The place of `number`, which may be traced, among the ascending `numbers`: the first for one before them (a
    prediction layer's), the last for one behind them, any for one between.

    Arithmetic where they repeat a rhythm of up to LONGEST_RHYTHM, which XLA makes of many such places at once; else
    looked up.
    """
    library_of, first = library(number), numbers[0]
    number = library_of.clip(library_of.asarray(number), first, numbers[-1])
    distance = number - first if first else number
    steps = [n - first for n in numbers]
    for period in range(1, min(LONGEST_RHYTHM, steps[-1] + 1) + 1):
        beats = [n for n in steps if n < period]
        if steps == [n for n in range(steps[-1] + 1) if n % period in beats]:
            rest = distance % period
            return distance // period * len(beats) + sum((rest > beat).astype(np.int32) for beat in beats[:-1])
    return lookup(np.searchsorted(steps, np.arange(steps[-1] + 1)).astype(np.int32), distance)


def divided(a: Array, b: Array) -> Array:
    """`a / b` in float32, correctly rounded, with `b` broadcast to the shape of `a`.

    XLA turns the division by a constant or a broadcast value into a product with its reciprocal, so both are hidden.
    """
    if library(a, b) is np:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return np.asarray(a, np.float32) / np.asarray(b, np.float32)
    return a / lax.optimization_barrier(jnp.broadcast_to(jnp.asarray(b, jnp.float32), a.shape))


def settled(value: Array) -> Array:
    """`value`, computed before it is multiplied again: XLA would move a constant factor to the other side."""
    return lax.optimization_barrier(value) if isinstance(value, jax.Array) else value


def block(array: Array, lead: Sequence[Array], axis: int, start: Array, count: int) -> Array:
    """`array[*lead]` cut to `count` indices from `start` along its `axis`, without touching the rest of the array.

    `lead` and `start` may be traced integers in JAX. There bfloat16 is cut as integers, since XLA on a CPU would first
    widen the whole array to float32; and the array is tied to the indices, or a loop over them would begin with a copy.
    """
    if not isinstance(array, jax.Array):
        part = array[tuple(int(i) for i in lead)]
        return part[(slice(None),) * axis + (slice(int(start), int(start) + count),)]
    if array.dtype == jnp.bfloat16:
        array, lead, start = lax.optimization_barrier((array, [*lead], start))
        return bitcast(block(bitcast(array, jnp.uint16), lead, axis, start, count), jnp.bfloat16)
    starts = [*lead, *(start if i == axis else 0 for i in range(array.ndim - len(lead)))]
    sizes = [1] * len(lead) + [count if i == axis else size for i, size in enumerate(array.shape[len(lead) :])]
    starts = [jnp.asarray(i, jnp.int32) for i in starts]
    return lax.dynamic_slice(array, starts, sizes).reshape(sizes[len(lead) :])


def at(array: Array, lead: Sequence[Array]) -> Array:
    """`array[*lead]`, with traced integers in JAX."""
    if not lead:
        return array
    if array.ndim == len(lead):
        return block(array[..., None], lead, 0, 0, 1)[0]
    return block(array, lead, 0, 0, array.shape[len(lead)])


def stacked(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays of one rank and dtype as one with an axis in front, as large as the largest: zeros fill up the others."""
    shape = tuple(max(sizes) for sizes in zip(*(array.shape for array in arrays), strict=True))
    out = np.zeros((len(arrays), *shape), arrays[0].dtype)
    for place, array in enumerate(arrays):
        part = out[place, ...]
        part[tuple(map(slice, array.shape))] = array
    return out
