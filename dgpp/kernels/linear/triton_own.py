"""Formats whose product has a kernel of its own, because their codes are not one or two in a byte of a row."""

from __future__ import annotations

from collections.abc import Callable

import jax

from dgpp.formats import Format, Weight
from dgpp.formats.bf12 import BF12
from dgpp.formats.exl3 import EXL3, SPAN
from dgpp.formats.gptq import GPTQ
from dgpp.formats.int8_planes import Int8Planes
from dgpp.formats.mixed346 import GROUP, Mixed346
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.linear.triton_bf12 import bf12_leaves
from dgpp.kernels.linear.triton_exl3 import exl3_leaves
from dgpp.kernels.linear.triton_mixed346 import mixed346_leaves
from dgpp.kernels.linear.triton_recipe import Recipe
from dgpp.kernels.linear.triton_words import words_leaves, words_of

Leaves = Callable[[jax.Array, Weight, jax.Array, jax.Array, Ranges | None], jax.Array]
"""float32 [leaves, R, N] of (x, w, layer, used, ranges), whose arguments are checked; without ranges, the parts of a
sum over all of K."""


def own_kernel(format: Format, ranges: Ranges, k: int) -> Leaves | None:
    """The kernel for a matrix of K = `k` summed over `ranges`; None where the format has none."""
    match format:
        case BF12():
            return bf12_leaves
        case EXL3():
            return exl3_leaves if on(SPAN, ranges, k) else None
        case Int8Planes():
            return words_leaves if on(GROUP, ranges, k) else None
        case GPTQ(act_order=False):
            group = words_of(format).group
            return words_leaves if on(group, ranges, k) and k % format.per_scale == 0 and group >= 32 else None
        case Mixed346():
            return mixed346_leaves if on(GROUP, ranges, k) else None
    return None


def tiled_as(format: Format) -> Recipe | None:
    """What `triton_tiles` finds the tiles of such a format by; None for one that has no kernel of its own."""
    match format:
        case BF12():
            return Recipe("bf12")
        case EXL3():
            return Recipe("exl3")
        case Mixed346():
            return Recipe(format.name)
        case Int8Planes() | GPTQ():
            return Recipe(words_of(format).kind)
    return None


def on(unit: int, ranges: Ranges, k: int) -> bool:
    """Whether all ranges begin and end on multiples of `unit`, or at the end of K."""
    return not any(bound % unit and bound != k for pair in ranges for bound in pair)
