"""The form in which the product kernel reads rows: f16, by K range and plane, in the order of the matrix instruction.

Kernels that produce rows write this form themselves for the matrices they feed; others' rows go through `prepare`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.formats import format_named
from dgpp.kernels.gpu.launch import Out, architecture, launch
from dgpp.kernels.linear.fed import Fed, Feed, bare
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.linear.triton_prepare import prepare
from dgpp.kernels.linear.triton_recipe import Recipe, parts, recipe
from dgpp.kernels.linear.triton_tiles import Tile, tile_for

LARGEST_UNIT = 64  # columns over which an operand is reordered at most
RUNS = {"sm_90": 2}  # neighbours along K that the matrix instruction takes together, see `triton_decode`
LARGEST_RUN = 4
LARGEST_COUNT = 2  # groups in one step, where steps of the tile's size end with every range
LARGEST_STEP = 256  # columns of steps that are made to end with them, in tiles of up to
EVEN_ROWS = 16  # rows: with more, the sums of so many groups take all registers
PREPARE_WARPS = 8


@dataclass(frozen=True)
class Form:
    """One form; two matrices with equal forms read the same operand."""

    ranges: Ranges
    rows: int  # a multiple of the tile's
    padded: int  # columns of a plane
    planes: int
    unit: int
    run: int
    exponent: int
    group: int  # columns with a shift of their own

    @property
    def outs(self) -> tuple[Out, Out]:
        """The operand f16 [leaves, planes, rows, padded] and the factor f32 [leaves, groups, rows] that undoes its
        shifts."""
        leaves, groups = len(self.ranges), self.padded * self.planes // self.group
        return (
            Out((leaves, self.planes, self.rows, self.padded), jnp.float16),
            Out((leaves, groups, self.rows), jnp.float32),
        )

    @property
    def constants(self) -> dict[str, Any]:
        """Those of `triton_prepare.store_operand`."""
        return {
            "RPAD": self.rows,
            "PADDED": self.padded,
            "PLANES": self.planes,
            "UNIT": self.unit,
            "RUN": self.run,
            "EXPONENT": self.exponent,
            "GROUP": self.group,
        }


def bounds_of(ranges: Ranges) -> jax.Array:
    """int32 [leaves, 2]: where the ranges begin and end."""
    return jnp.asarray(np.array(ranges, np.int32))


def common_length(ranges: Ranges) -> int:
    """The length of ranges that are equally long and follow each other from 0 on; else 0."""
    length = ranges[0][1] - ranges[0][0]
    even = all(pair == (i * length, (i + 1) * length) for i, pair in enumerate(ranges))
    return length if even else 0


def count_of(found: Recipe, tile: Tile, ranges: Ranges) -> int:
    """Groups in one step: those of the tile, or others that divide every range where those do not."""
    if found.code == "bf16":
        return 1
    size = 2 if found.code == "f16" else 1
    count = min(max(tile.bytes // size * found.planes // found.group, 1), LARGEST_COUNT)
    groups, rest = divmod(math.gcd(*(stop - start for start, stop in ranges)), found.group)
    if rest or groups % count == 0 or tile.rows > EVEN_ROWS:
        return count
    return max(n for n in range(1, LARGEST_STEP // found.group + 1) if groups % n == 0)


def step_of(found: Recipe, tile: Tile, ranges: Ranges) -> int:
    """Weights along K in one step of the product kernel: except for bfloat16 whole groups."""
    return tile.bytes // 2 if found.code == "bf16" else count_of(found, tile, ranges) * found.group


def form_of(found: Recipe, tile: Tile, rows: int, ranges: Ranges) -> Form | None:
    """The form in which a product of `rows` rows over `ranges` reads them; None for bfloat16 as it is."""
    if found.code == "bf16":
        return None
    step = step_of(found, tile, ranges)
    width = step // found.planes
    unit = 0 if found.code == "f16" else min(LARGEST_UNIT, found.group // found.planes)
    run = min(RUNS.get(architecture(), LARGEST_RUN), unit // 8)
    longest = max(stop - start for start, stop in ranges)
    padded = -(-longest // step) * width
    return Form(ranges, -(-rows // tile.rows) * tile.rows, padded, found.planes, unit, run, found.exponent, found.group)


def prepared(x: jax.Array, form: Form, used: jax.Array, each: int = 1) -> tuple[jax.Array, jax.Array]:
    """(operand, factor) of rows x bf16 [R, K]. Every `each` of them count as one of `used`."""
    operand, factor = launch(
        prepare,
        (x, bounds_of(form.ranges), used),
        form.outs,
        (form.rows, len(form.ranges)),
        form.constants | {"K": x.shape[1], "EACH": each, "BLOCK": 1 << (form.padded - 1).bit_length()},
        warps=PREPARE_WARPS,
        stages=1,
    )
    return operand, factor


def operand_in(form: Form, x: jax.Array | Fed, used: jax.Array, each: int = 1) -> tuple[jax.Array, jax.Array]:
    """(operand, factor) of rows in a form: what was left beside them, else made now."""
    if isinstance(x, Fed):
        found = x.operands.get(form)
        return prepared(x.values, form, used, each) if found is None else found
    return prepared(x, form, used, each)


def forms(feeds: Sequence[Feed], rows: int) -> list[Form]:
    """The forms that matrices will read rows in, each once, in the order of the matrices."""
    found: dict[Form, None] = {}
    for weight, ranges in feeds:
        k = weight.shape[-1]
        kind = recipe(format_named(weight.format), ranges or ((0, k),), k)
        if kind is not None and not kind.rotated:
            form = form_of(
                kind, tile_for(architecture(), kind, rows, ranges is not None), rows, ranges or parts(kind, k)
            )
            if form is not None:
                found[form] = None
    return list(found)


def fed(x: jax.Array | Fed, feeds: Sequence[Feed], used: jax.Array) -> Fed:
    """Rows with all operands that matrices will read beside them."""
    return Fed(bare(x), {form: operand_in(form, x, used) for form in forms(feeds, x.shape[0])})
