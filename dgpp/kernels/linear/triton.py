"""linear on a GPU: the packed weight is read once for up to 64 rows and decoded in registers, in front of the matrix
units.

Same arguments and results as `dgpp.kernels.linear`; another order, that of `triton_product`, so the bits are not those
of the reference. Promise: for one architecture, a row's bits depend on its values, the weight and the K ranges alone.
Formats without a recipe, and ranges that cut their groups too small, run as the reference does.
"""

from __future__ import annotations

import functools

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
    (rows, k), n = x.shape, w.shape[0]
    tile = tile_for(architecture(), found, rows)
    payload = w.arrays[found.payload]
    layers = payload.shape[0] if check_weight("linear", w) else 1
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
    if found.code == "bf16":
        operand, factor = x, jnp.zeros((), jnp.float32)
    else:
        block = 1 << (padded - 1).bit_length()
        operand, factor = launch(
            prepare,
            (x, bounds, used),
            (
                Out((len(ranges), found.planes, rpad, padded), jnp.float16),
                Out((len(ranges), rpad), jnp.float32),
            ),
            (rpad, len(ranges)),
            {"K": k, "RPAD": rpad, "PADDED": padded, "PLANES": found.planes, "UNIT": unit}
            | {"RUN": run, "EXPONENT": found.exponent, "BLOCK": block},
            warps=PREPARE_WARPS,
            stages=1,
        )
    scale = w.arrays[found.scale] if found.scale else factor
    last = w.arrays[found.last_field] if found.last_field else factor
    constants = {
        "LAYERS": layers,
        "N": n,
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
        "COLUMNS": scale.shape[-1] if found.scale else 1,
        "LAST": LASTS.index(found.last),
        "UNIT": unit,
        "RUN": run,
        "COUNT": count,
        "BN": tile.columns,
        "BR": tile.rows,
        "BK": step,
        "ASM": ASSEMBLY,
    }
    grid = (rpad // tile.rows, -(-n // tile.columns), len(ranges))
    arguments = (operand, factor, payload, scale, last, bounds, layer, used)
    outs = (Out((len(ranges), rows, n), jnp.float32),)
    return launch(product, arguments, outs, grid, constants, warps=tile.warps, stages=tile.stages)[0]


def steps_of(found: Recipe, tile: Tile) -> int:
    """Weights along K in one step of the product kernel: except for bfloat16 one, two or four groups."""
    size = 2 if found.code in ("bf16", "f16") else 1
    step = tile.bytes // size * found.planes
    return step if found.code == "bf16" else min(max(step, found.group), LARGEST_COUNT * found.group)
