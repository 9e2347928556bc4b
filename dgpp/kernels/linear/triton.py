"""linear on a GPU: the packed weight is read once for up to 64 rows and decoded in registers, in front of the matrix
units.

Same arguments and results as `dgpp.kernels.linear`; another order, that of `triton_product`, so the bits are not those
of the reference. Promise: for one architecture, a row's bits depend on its values, the weight and the K ranges alone.
The formats of `triton_own` have kernels of their own, whose orders are said there. What has neither, and ranges that
cut groups too small, run as the reference does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dgpp.formats import Weight, format_named
from dgpp.kernels.gpu.launch import ASSEMBLY, Out, architecture, launch
from dgpp.kernels.linear import reference
from dgpp.kernels.linear.arguments import check_linear, check_weight
from dgpp.kernels.linear.fed import Fed, Feed, bare
from dgpp.kernels.linear.parts import summed
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.linear.triton_form import bounds_of, common_length, count_of, fed, form_of, operand_in, step_of
from dgpp.kernels.linear.triton_hadamard import rotated
from dgpp.kernels.linear.triton_matrices import product
from dgpp.kernels.linear.triton_own import own_kernel
from dgpp.kernels.linear.triton_recipe import CODES, LASTS, SCALES, Recipe, alignment, parts, recipe
from dgpp.kernels.linear.triton_tiles import FEW_OUTPUTS, ROWS, Tile, tile_for
from dgpp.kernels.stored import to_bf16

MOST = 4  # matrices in a launch
MOST_BESIDE = 2  # small ones of bfloat16 with them
LARGEST_EVEN = 64  # common divisor of their sizes that a kernel is told of


def linear(x: jax.Array | Fed, w: Weight, layer: jax.Array, used: jax.Array) -> jax.Array:
    """float32 [R, N]; arguments as in `dgpp.kernels.linear`, order as in `triton_product`.

    The sum over K is that of its `parts`, added here in ascending order, where XLA joins it with what takes the result.
    """
    return summed(linear_parts(x, w, layer, used))


def linear_parts(x: jax.Array | Fed, w: Weight, layer: jax.Array, used: jax.Array) -> jax.Array:
    """float32 [P, R, N]: the parts of `linear`, for a kernel that adds them in ascending order itself."""
    whole = check_linear(x, w, layer, used)
    found = recipe(format_named(w.format), whole, w.shape[-1])
    if found is None:
        if own := own_kernel(format_named(w.format), whole, w.shape[-1]):
            return own(bare(x), w, layer, used, None)
        return reference.linear(bare(x), w, layer, used)[None]
    return _product(x, [(w, layer)], found, used, parts(found, w.shape[-1]))[0]


def products(x: jax.Array | Fed, ws: Sequence[Weight], layer: jax.Array, used: jax.Array) -> list[jax.Array]:
    """float32 [P, R, N] of every matrix; arguments as in `dgpp.kernels.linear`, order as in `linear`.

    Rows are brought into each form that the matrices read them in once. Up to MOST matrices of one format share a
    launch, and small ones of bfloat16 join one of another format: alone they would take their own time.
    """
    x = fed(x, [Feed(w) for w in ws], used)
    outs: dict[int, jax.Array] = {}
    for some, found, beside in _launches(x, ws, layer, used):
        given, more = ([(ws[i], ws[i].place(layer)) for i in indices] for indices in (some, beside))
        if found is None:
            made = [linear_parts(x, w, place, used) for w, place in given]
        else:
            made = _product(x, given, found, used, parts(found, x.shape[-1]), beside=more)
        outs |= zip([*some, *beside], made, strict=True)
    return [outs[i] for i in range(len(ws))]


def _launches(
    x: Fed, ws: Sequence[Weight], layer: jax.Array, used: jax.Array
) -> list[tuple[list[int], Recipe | None, list[int]]]:
    """What shares a launch: the indices of matrices of one format, their recipe, and the indices of those of bfloat16
    that join them. These are MOST_BESIDE at most with FEW_OUTPUTS outputs together, of few rows, and summed in the same
    parts."""
    rows, k = x.shape
    groups: list[tuple[list[int], Recipe | None, list[int]]] = [
        (some, recipe(format_named(ws[some[0]].format), check_linear(x, ws[some[0]], layer, used), k), [])
        for some in _together(ws)
    ]
    plain = [group for group in groups if group[1] is not None and group[1].code == "bf16"]
    small = [g for g in plain if len(g[0]) <= MOST_BESIDE and sum(ws[i].shape[0] for i in g[0]) <= FEW_OUTPUTS]
    hosts = [g for g in groups if g[1] is not None and g not in plain and parts(g[1], k) == parts(Recipe("bf16"), k)]
    if small and hosts and rows <= ROWS[0]:
        groups.remove(small[0])
        hosts[0][2].extend(small[0][0])
    return groups


def _together(ws: Sequence[Weight]) -> list[list[int]]:
    """The indices of matrices that share a launch: of one format and K, MOST at most."""
    groups: dict[tuple[str, int], list[int]] = {}
    for i, w in enumerate(ws):
        groups.setdefault((w.format, w.shape[-1]), []).append(i)
    return [found[i : i + MOST] for found in groups.values() for i in range(0, len(found), MOST)]


def linear_leaves(x: jax.Array | Fed, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges) -> jax.Array:
    """float32 [len(ranges), R, N]; arguments as in `dgpp.kernels.linear`, order as in `triton_product`."""
    return _leaves(x, w, layer, used, ranges, jnp.float32)


def rounded_leaves(x: jax.Array | Fed, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges) -> jax.Array:
    """`linear_leaves` rounded to bf16, which the product stores itself."""
    leaves = _leaves(x, w, layer, used, ranges, jnp.bfloat16)
    return leaves if leaves.dtype == jnp.bfloat16 else to_bf16(leaves)


def _leaves(x: jax.Array | Fed, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges, dtype: Any) -> jax.Array:
    """[len(ranges), R, N], as `dtype` where the kernel can store it so, else float32."""
    ranges = check_linear(x, w, layer, used, ranges)
    found = recipe(format_named(w.format), ranges, w.shape[-1])
    if found is None:
        if own := own_kernel(format_named(w.format), ranges, w.shape[-1]):
            return own(bare(x), w, layer, used, ranges)
        return reference.linear_leaves(bare(x), w, layer, used, ranges)
    return _product(x, [(w, layer)], found, used, ranges, leaves=True, dtype=dtype)[0]


def _product(
    x: jax.Array | Fed,
    ws: Sequence[tuple[Weight, jax.Array]],
    found: Recipe,
    used: jax.Array,
    ranges: Ranges,
    leaves: bool = False,
    dtype: Any = jnp.float32,
    beside: Sequence[tuple[Weight, jax.Array]] = (),
) -> list[jax.Array]:
    """`dtype` [len(ranges), R, N] of matrices of one format and K at their layers, and then of those of bfloat16
    `beside` them; `leaves`: of `linear_leaves`.

    What decides the tile is known to who makes the form of the rows, which depends on it: whether they are read by
    `linear_leaves`. Rows of bfloat16 have no form; there the number of outputs decides.
    """
    rows = x.shape[0]
    few = sum(w.shape[0] for w, _ in ws) <= FEW_OUTPUTS if found.code == "bf16" else leaves
    tile = tile_for(architecture(), found, rows, few)
    given = operand_of(x, found, tile, used, ranges)
    for w, layer in (*ws, *beside):
        check_linear(bare(x), w, layer, used)
    # The places of the matrices that lack are filled with the first; no program reads them.
    slots = [*ws, *[ws[0]] * (MOST - len(ws))]
    fields = [fields_of(w, found, given.factor)[0] for w, _ in slots]
    sizes = [w.shape[0] for w, _ in ws] + [0] * (MOST - len(ws))
    constants = given.constants | {"COLUMNS": fields_of(ws[0][0], found, given.factor)[1]["COLUMNS"]}
    constants |= {"MATRICES": len(ws), "EVEN": math.gcd(LARGEST_EVEN, *sizes)}
    constants |= {f"N_{i}": n for i, n in enumerate(sizes)}
    stacks = [
        field[0].shape[0] if check_weight("linear", w) else 1 for field, (w, _) in zip(fields, slots, strict=True)
    ]
    constants |= {f"LAYERS_{i}": layers for i, layers in enumerate(stacks)}
    layers = [layer for _, layer in slots]
    arguments = (given.values, given.factor, *itertools.chain(*zip(*fields, strict=True)), given.bounds, *layers, used)
    small = [w.shape[0] for w, _ in beside] + [0] * (MOST_BESIDE - len(beside))
    arguments += _beside(bare(x), beside, given.factor)
    constants |= _beside_constants(found, tile, small, beside, ranges)
    outs = [Out((len(ranges), rows, n) if n else (1,), dtype) for n in (*sizes, *small)]
    columns = sum(-(-n // tile.columns) for n in (*sizes, *small))
    grid = (constants["RPAD"] // tile.rows, columns, len(ranges))
    made = launch(product, arguments, outs, grid, constants, warps=tile.warps, stages=tile.stages)
    return [*made[: len(ws)], *made[MOST : MOST + len(beside)]]


def _beside(x: jax.Array, beside: Sequence[tuple[Weight, jax.Array]], absent: jax.Array) -> tuple[jax.Array, ...]:
    """The arguments of `triton_matrices.beside`: the rows, the matrices, their layers."""
    if not beside:
        return (absent,) * (1 + 2 * MOST_BESIDE)
    slots = [*beside, *[beside[0]] * (MOST_BESIDE - len(beside))]
    return (x, *(w.arrays["values"] for w, _ in slots), *(layer for _, layer in slots))


def _beside_constants(
    found: Recipe, tile: Tile, sizes: Sequence[int], beside: Sequence[tuple[Weight, jax.Array]], ranges: Ranges
) -> dict[str, Any]:
    """The constants of `triton_matrices.beside`: its steps take no more shared memory than those of the tile."""
    stacks = [w.arrays["values"].shape[0] if check_weight("linear", w) else 1 for w, _ in beside]
    stage = tile.columns * tile.bytes * (2 if found.code == "f16" else 1) + 2 * tile.rows * step_of(found, tile, ranges)
    step = 1 << (stage // (2 * (tile.columns + tile.rows))).bit_length() - 1
    constants = {f"B_{i}": n for i, n in enumerate(sizes)}
    constants |= {f"BESIDE_LAYERS_{i}": n for i, n in enumerate([*stacks, *[1] * (MOST_BESIDE - len(stacks))])}
    return constants | {"BESIDE_BK": step, "BESIDE_TAIL": any((stop - start) % step for start, stop in ranges)}


@dataclass(frozen=True)
class Operand:
    """The rows of a product as `triton_product.tile` takes them, and the constants that rows and tile decide."""

    values: jax.Array
    factor: jax.Array
    bounds: jax.Array
    constants: dict[str, Any]


def operand_of(
    x: jax.Array | Fed, found: Recipe, tile: Tile, used: jax.Array, ranges: Ranges, each: int = 1
) -> Operand:
    """The operand of rows x bfloat16 [R, K]. Every `each` of them count as one of `used`."""
    rows, k = x.shape
    step, form = step_of(found, tile, ranges), form_of(found, tile, rows, ranges)
    constants = {
        "K": k,
        "R": rows,
        "RPAD": form.rows if form else -(-rows // tile.rows) * tile.rows,
        "PADDED": form.padded if form else k,
        "LENGTH": common_length(ranges),
        "ALIGN": alignment(ranges),
        "TAIL": any((stop - start) % step for start, stop in ranges),
        "CODE": CODES.index(found.code),
        "PLANES": found.planes,
        "SCALE": SCALES.index(found.kind),
        "SCALE_ROWS": found.scale_rows,
        "SCALE_WIDTH": found.scale_width,
        "LAST": LASTS.index(found.last),
        "UNIT": form.unit if form else 0,
        "RUN": form.run if form else 1,
        "COUNT": count_of(found, tile, ranges),
        "STAGES": tile.stages,
        "BN": tile.columns,
        "BR": tile.rows,
        "BK": step,
        "ASM": ASSEMBLY,
    }
    bounds = bounds_of(ranges)
    x = rotated(bare(x)) if found.rotated else x
    if form is None:
        return Operand(bare(x), jnp.zeros((), jnp.float32), bounds, constants)
    return Operand(*operand_in(form, x, used, each), bounds, constants)


def fields_of(w: Weight, found: Recipe, absent: jax.Array) -> tuple[tuple[jax.Array, ...], dict[str, Any]]:
    """((payload, scale, last), constants) of `triton_product.tile` for `w`; `absent` stands for what it has not."""
    scale = w.arrays[found.scale] if found.scale else absent
    last = w.arrays[found.last_field] if found.last_field else absent
    constants = {"N": w.shape[-2], "COLUMNS": scale.shape[-1] if found.scale else 1}
    return (w.arrays[found.payload], scale, last), constants
