"""The experts' ops on a GPU: an expert is read once for all the rows that chose it, in one launch for all experts.

Same arguments and results as `dgpp.kernels.experts`, in the order of `dgpp.kernels.linear.triton_product`. Promise: for
one architecture, the bits of a row and an expert depend on the row's values, the expert's matrix and the K ranges
alone; they are those of the linear of kind "triton" for that row and matrix. Formats without a recipe run as the
reference does.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from dgpp.formats import Weight, format_named
from dgpp.kernels.experts import composed, reference
from dgpp.kernels.experts.arguments import check_gated, check_grouped, check_weights_of
from dgpp.kernels.experts.triton_grouped import activate, fold, grouped
from dgpp.kernels.experts.triton_groups import count, group_few, group_many
from dgpp.kernels.gpu.launch import Out, architecture, launch
from dgpp.kernels.linear.arguments import check_weight
from dgpp.kernels.linear.fed import Fed, bare
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.linear.triton import fields_of, operand_of
from dgpp.kernels.linear.triton_recipe import Recipe, parts, recipe
from dgpp.kernels.linear.triton_tiles import tile_for

PROGRAMS = {"sm_90": 4 * 132, "sm_121": 4 * 48}
"""With so many programs each adds the parts of its sum itself; with fewer, every part has a program of its own."""
FUSED = 32
"""Pairs in a tile up to which a program has registers for the outputs of gate beside those of up."""
SCRATCH = 256 << 20  # bytes of the outputs of all leaves at once; above it leaf by leaf
BLOCK = 1024
WARPS = 4


def grouped_linear(x: jax.Array | Fed, experts: jax.Array, w: Weight, layer: jax.Array, used: jax.Array) -> jax.Array:
    """float32 [R, E', N]; arguments as in `dgpp.kernels.experts`.

    The sum over K is that of the parts which the linear of kind "triton" adds.
    """
    whole = check_grouped(x, experts, w, layer, used)
    found = recipe(format_named(w.format), whole, w.shape[-1])
    if found is None:
        return reference.grouped_linear(bare(x), experts, w, layer, used)
    first, *others = _products(x, experts, (w,), (layer,), used, found, parts(found, w.shape[-1]), add=True)
    return _held(functools.reduce(jnp.add, others, first), experts, w, used)


def grouped_linear_leaves(
    x: jax.Array, experts: jax.Array, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges
) -> jax.Array:
    """float32 [len(ranges), R, E', N]; arguments as in `dgpp.kernels.experts`."""
    ranges = check_grouped(x, experts, w, layer, used, ranges)
    found = recipe(format_named(w.format), ranges, w.shape[-1])
    if found is None:
        return reference.grouped_linear_leaves(x, experts, w, layer, used, ranges)
    return _held(_products(x, experts, (w,), (layer,), used, found, ranges), experts, w, used)


def grouped_gated(
    x: jax.Array | Fed,
    experts: jax.Array,
    weights: Sequence[Weight],
    layers: Sequence[jax.Array],
    used: jax.Array,
    zero: jax.Array,
) -> jax.Array:
    """bf16 [R, E', I]; arguments as in `dgpp.kernels.experts`.

    Gate and up are one launch when they are of one format, and with many pairs the activation is in it.
    """
    size = check_gated(weights, layers)
    for w, layer in zip(weights, layers, strict=True):
        whole = check_grouped(x, experts, w, layer, used)
    k = weights[0].shape[-1]
    found = [recipe(format_named(w.format), whole, k) for w in weights]
    stacks = {next(iter(w.arrays.values())).shape[0] if check_weight("grouped_gated", w) else 1 for w in weights}
    if found[0] is None or found[0] != found[-1] or len(stacks) > 1 or x.ndim == 3:
        gate, up = composed.both(grouped_linear, x, experts, weights, layers, used)
        return _activate(gate[None], up[None], experts, weights[0], used, size)
    y = _products(x, experts, weights, layers, used, found[0], parts(found[0], k), add=True, gated=True)
    if y.ndim == 3:
        return _held(y, experts, weights[0], used)
    return _activate(y, y, experts, weights[0], used, size, offset=size)


def grouped_down(
    act: jax.Array,
    experts: jax.Array,
    weights: jax.Array,
    w: Weight,
    layer: jax.Array,
    used: jax.Array,
    ranges: Ranges,
    zero: jax.Array,
) -> jax.Array:
    """float32 [len(ranges), R, D]; arguments as in `dgpp.kernels.experts`."""
    ranges = check_grouped(act, experts, w, layer, used, ranges)
    check_weights_of(experts, weights)
    found = recipe(format_named(w.format), ranges, w.shape[-1])
    if found is None:
        return _folded(reference.grouped_linear_leaves(act, experts, w, layer, used, ranges), experts, weights, w, used)
    at_once = 4 * len(ranges) * experts.size * w.shape[-2] <= SCRATCH
    turns = (ranges,) if at_once else tuple((pair,) for pair in ranges)
    each = (_products(act, experts, (w,), (layer,), used, found, some) for some in turns)
    return jnp.concatenate([_folded(some, experts, weights, w, used) for some in each])


def _folded(each: jax.Array, experts: jax.Array, weights: jax.Array, w: Weight, used: jax.Array) -> jax.Array:
    """float32 [leaves, R, D] from each [leaves, R, E', D]."""
    leaves, rows, chosen, d = each.shape
    constants = {"R": rows, "D": d, "CHOSEN": chosen, "HELD": w.shape[0], "BLOCK": BLOCK}
    out = Out((leaves, rows, d), jnp.float32)
    grid = (rows, -(-d // BLOCK), leaves)
    return launch(fold, (each, experts, weights, used), (out,), grid, constants, warps=WARPS, stages=1)[0]


def _live(experts: jax.Array, w: Weight, used: jax.Array) -> jax.Array:
    """bool [R, E']: the pairs of real rows and of experts that are here."""
    return (jnp.arange(experts.shape[0])[:, None] < used) & (experts >= 0) & (experts < w.shape[0])


def _held(y: jax.Array, experts: jax.Array, w: Weight, used: jax.Array) -> jax.Array:
    """y [..., R, E', N] with zeros where there is nothing to compute: kernels leave that memory as it was."""
    return jnp.where(_live(experts, w, used)[..., None], y, 0)


def _activate(
    gate: jax.Array,  # f32 [parts, R, E', STRIDE]
    up: jax.Array,
    experts: jax.Array,
    w: Weight,
    used: jax.Array,
    size: int,
    offset: int = 0,
) -> jax.Array:
    """bf16 [R, E', size] of the sums over the parts; `up` begins at its column `offset`."""
    stages, rows, chosen, stride = gate.shape
    constants = {"P": rows * chosen, "N": size, "STRIDE": stride, "OFFSET": offset, "PARTS": stages}
    constants |= {"CHOSEN": chosen, "HELD": w.shape[0], "BLOCK": BLOCK}
    grid = (rows * chosen, -(-size // BLOCK))
    out = Out((rows, chosen, size), jnp.bfloat16)
    return launch(activate, (gate, up, experts, used), (out,), grid, constants, warps=WARPS, stages=1)[0]


def _products(
    x: jax.Array | Fed,
    experts: jax.Array,
    weights: Sequence[Weight],
    layers: Sequence[jax.Array],
    used: jax.Array,
    found: Recipe,
    ranges: Ranges,
    add: bool = False,
    gated: bool = False,
) -> jax.Array:
    """float32 [len(ranges), R, E', N] of one weight; undefined for pairs that are not live.

    With `add` the ranges are to be added, and there may be one sum in their place. With `gated`, which is with `add`,
    N are the outputs of gate and then those of up, in bfloat16 if they are sums; or the activation bfloat16 [R, E', I]
    is there instead of them.
    """
    (rows, chosen), held, k = experts.shape, weights[0].shape[0], x.shape[-1]
    pairs, matrices = rows * chosen, 2 if gated else 1
    outputs = check_gated(weights, layers) if gated else weights[0].shape[-2]
    tile = tile_for(architecture(), found, -(-pairs // held))
    place, members = _tiles(experts, used, held, tile.rows)
    columns = -(-outputs // tile.columns)
    whole = add and place.shape[0] * columns >= PROGRAMS[architecture()]
    fused = gated and whole and tile.rows <= FUSED
    if x.ndim == 3:
        given = operand_of(bare(x).reshape(-1, k), found, tile, used, ranges, each=chosen)
    else:
        given = operand_of(x, found, tile, used, ranges)
    fields, constants = fields_of(weights[0], found, given.factor)
    more, _ = fields_of(weights[-1], found, given.factor)
    constants |= given.constants
    constants |= {
        "LAYERS": fields[0].shape[0] if check_weight("grouped_linear", weights[0]) else 1,
        "HELD": held,
        "CHOSEN": 1 if x.ndim == 3 else chosen,
        "P": pairs,
        "LEAVES": len(ranges),
        "MATRICES": matrices,
        "OFFSET": outputs if gated and len(weights) == 1 else 0,
        "OUTPUTS": outputs,
        "WHOLE": whole,
        "GATED": fused,
    }
    if fused:
        out = Out((rows, chosen, outputs), jnp.bfloat16)
    else:
        dtype = jnp.bfloat16 if gated and whole else jnp.float32
        out = Out((1 if whole else len(ranges), rows, chosen, matrices * outputs), dtype)
    grid = (place.shape[0], columns, 1 if fused else matrices if whole else len(ranges) * matrices)
    arguments = (given.values, given.factor, *fields, *more, given.bounds, place, members, layers[0], layers[-1])
    return launch(grouped, arguments, (out,), grid, constants, warps=tile.warps, stages=tile.stages)[0]


def _tiles(experts: jax.Array, used: jax.Array, held: int, size: int) -> tuple[jax.Array, jax.Array]:
    """(place, members) of tiles of up to `size` pairs, as in `triton_groups`."""
    rows, chosen = experts.shape
    pairs = rows * chosen
    constants = {"P": pairs, "CHOSEN": chosen, "HELD": held}
    if pairs <= held:
        outs = (Out((pairs,), jnp.int32), Out((pairs, size), jnp.int32))
        constants |= {"PPAD": 1 << (pairs - 1).bit_length(), "BR": size}
        place, members = launch(group_few, (experts, used), outs, (pairs,), constants, warps=WARPS, stages=1)
        return place, members
    tiles = held + pairs // size  # each expert's last tile may not be full
    constants |= {"BLOCK": BLOCK}
    each = (Out((held,), jnp.int32),)
    counts = launch(count, (experts, used), each, (held,), constants, warps=WARPS, stages=1)[0]
    outs = (Out((tiles,), jnp.int32), Out((tiles, size), jnp.int32))
    constants |= {"HPAD": 1 << (held - 1).bit_length(), "T": tiles, "BR": size}
    place, members = launch(group_many, (experts, used, counts), outs, (held,), constants, warps=WARPS, stages=1)
    return place, members
