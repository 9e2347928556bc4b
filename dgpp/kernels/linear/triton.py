"""linear on a GPU: the packed weight is read once for up to 64 rows and decoded in registers, in front of the matrix
units.

Same arguments and results as `dgpp.kernels.linear`; another order, that of `triton_product`, so the bits are not those
of the reference. Promise: for one architecture, a row's bits depend on its values, the weight and the K ranges alone.
Formats without a recipe, and ranges that cut their groups too small, run as the reference does.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.formats import Weight, format_named
from dgpp.kernels.gpu.launch import ASSEMBLY, Out, architecture, launch
from dgpp.kernels.linear import reference
from dgpp.kernels.linear.arguments import Ranges, check_linear, check_weight
from dgpp.kernels.linear.triton_prepare import prepare
from dgpp.kernels.linear.triton_product import product
from dgpp.kernels.linear.triton_recipe import CODES, LASTS, SCALES, Recipe, alignment, parts, recipe
from dgpp.kernels.linear.triton_tiles import Tile, tile_for

LARGEST_UNIT = 64  # columns over which an operand is reordered at most
RUNS = {"sm_90": 2}  # neighbours along K that the matrix instruction takes together, see `triton_decode`
LARGEST_RUN = 4
LARGEST_COUNT = 4  # groups in one step at most
PREPARE_WARPS = 8


def linear(x: jax.Array, w: Weight, layer: jax.Array, used: jax.Array) -> jax.Array:
    """float32 [R, N]; arguments as in `dgpp.kernels.linear`, order as in `triton_product`.

    The sum over K is that of its `parts`, added here in ascending order, where XLA joins it with what takes the result.
    """
    whole = check_linear(x, w, layer, used)
    found = recipe(format_named(w.format), whole, w.shape[-1])
    if found is None:
        return reference.linear(x, w, layer, used)
    ranges = parts(found, w.shape[-1])
    first, *others = _product(x, w, found, layer, used, ranges)
    return functools.reduce(jnp.add, others, first)


def linear_leaves(x: jax.Array, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges) -> jax.Array:
    """float32 [len(ranges), R, N]; arguments as in `dgpp.kernels.linear`, order as in `triton_product`."""
    ranges = check_linear(x, w, layer, used, ranges)
    found = recipe(format_named(w.format), ranges, w.shape[-1])
    if found is None:
        return reference.linear_leaves(x, w, layer, used, ranges)
    return _product(x, w, found, layer, used, ranges)


def _product(x: jax.Array, w: Weight, found: Recipe, layer: jax.Array, used: jax.Array, ranges: Ranges) -> jax.Array:
    rows, n = x.shape[0], w.shape[0]
    tile = tile_for(architecture(), found, rows)
    given = operand_of(x, found, tile, used, ranges)
    fields, constants = fields_of(w, found, given.factor)
    constants |= given.constants | {"LAYERS": fields[0].shape[0] if check_weight("linear", w) else 1}
    grid = (constants["RPAD"] // tile.rows, -(-n // tile.columns), len(ranges))
    arguments = (given.values, given.factor, *fields, given.bounds, layer, used)
    outs = (Out((len(ranges), rows, n), jnp.float32),)
    return launch(product, arguments, outs, grid, constants, warps=tile.warps, stages=tile.stages)[0]


@dataclass(frozen=True)
class Operand:
    """The rows of a product as `triton_product.tile` takes them, and the constants that rows and tile decide."""

    values: jax.Array
    factor: jax.Array
    bounds: jax.Array
    constants: dict[str, Any]


def operand_of(x: jax.Array, found: Recipe, tile: Tile, used: jax.Array, ranges: Ranges, each: int = 1) -> Operand:
    """The operand of rows x bfloat16 [R, K]. Every `each` of them count as one of `used`."""
    rows, k = x.shape
    step = steps_of(found, tile)
    width = step // found.planes
    count = 1 if found.code == "bf16" else step // found.group
    unit = 0 if found.code in ("bf16", "f16") else min(LARGEST_UNIT, width // count)
    run = min(RUNS.get(architecture(), LARGEST_RUN), unit // 8)
    lengths = [stop - start for start, stop in ranges]
    padded = -(-max(lengths) // step) * width
    rpad = -(-rows // tile.rows) * tile.rows
    bounds = jnp.asarray(np.array(ranges, np.int32))
    even = all(pair == (i * lengths[0], (i + 1) * lengths[0]) for i, pair in enumerate(ranges))
    constants = {
        "K": k,
        "R": rows,
        "RPAD": rpad,
        "PADDED": padded,
        "LENGTH": lengths[0] if even else 0,
        "ALIGN": alignment(ranges),
        "TAIL": any(length % step for length in lengths),
        "CODE": CODES.index(found.code),
        "PLANES": found.planes,
        "SCALE": SCALES.index(found.kind),
        "SCALE_ROWS": found.scale_rows,
        "SCALE_WIDTH": found.scale_width,
        "LAST": LASTS.index(found.last),
        "UNIT": unit,
        "RUN": run,
        "COUNT": count,
        "BN": tile.columns,
        "BR": tile.rows,
        "BK": step,
        "ASM": ASSEMBLY,
    }
    if found.code == "bf16":
        return Operand(x, jnp.zeros((), jnp.float32), bounds, constants)
    block = 1 << (padded - 1).bit_length()
    values, factor = launch(
        prepare,
        (x, bounds, used),
        (
            Out((len(ranges), found.planes, rpad, padded), jnp.float16),
            Out((len(ranges), rpad), jnp.float32),
        ),
        (rpad, len(ranges)),
        {"K": k, "EACH": each, "RPAD": rpad, "PADDED": padded, "PLANES": found.planes, "UNIT": unit}
        | {"RUN": run, "EXPONENT": found.exponent, "BLOCK": block},
        warps=PREPARE_WARPS,
        stages=1,
    )
    return Operand(values, factor, bounds, constants)


def fields_of(w: Weight, found: Recipe, absent: jax.Array) -> tuple[tuple[jax.Array, ...], dict[str, Any]]:
    """((payload, scale, last), constants) of `triton_product.tile` for `w`; `absent` stands for what it has not."""
    scale = w.arrays[found.scale] if found.scale else absent
    last = w.arrays[found.last_field] if found.last_field else absent
    constants = {"N": w.shape[-2], "COLUMNS": scale.shape[-1] if found.scale else 1}
    return (w.arrays[found.payload], scale, last), constants


def steps_of(found: Recipe, tile: Tile) -> int:
    """Weights along K in one step of the product kernel: except for bfloat16 one, two or four groups."""
    size = 2 if found.code in ("bf16", "f16") else 1
    step = tile.bytes // size * found.planes
    return step if found.code == "bf16" else min(max(step, found.group), LARGEST_COUNT * found.group)
