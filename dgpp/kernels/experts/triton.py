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
from dgpp.kernels.experts.triton_groups import count, group, started
from dgpp.kernels.gpu.launch import Out, architecture, launch
from dgpp.kernels.linear.arguments import check_weight
from dgpp.kernels.linear.fed import Fed, Feed, bare
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.linear.triton import fields_of, operand_of
from dgpp.kernels.linear.triton_feed import Plan
from dgpp.kernels.linear.triton_form import form_of
from dgpp.kernels.linear.triton_recipe import Recipe, parts, recipe
from dgpp.kernels.linear.triton_tiles import Tile, tile_for

PROGRAMS = {"sm_90": 2 * 132, "sm_121": 2 * 48}
"""With so many programs each takes all leaves or parts of its sum; with fewer, every one has a program of its own."""
SCRATCH = 256 << 20  # bytes of experts' outputs between their products and the fold
STARTED = 256
"""Pairs up to which tables are made in one launch, that looks at all of them for each."""
BLOCK = 256  # columns that a program folds: with more, a few rows would have few programs
MOST = 32  # pairs in a tile
LISTED = 4096  # pairs that are looked at together when tables are made
WARPS = 4
LISTED_WARPS = 8


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
    feeds: Sequence[Feed] = (),
) -> jax.Array | Fed:
    """bf16 [R, E', I]; arguments as in `dgpp.kernels.experts`.

    Gate and up are one launch when they are of one format, and the activation is another, which leaves the operand of
    the first of `feeds` beside it: in the first it would cost more registers than it saves time.
    """
    size = check_gated(weights, layers)
    for w, layer in zip(weights, layers, strict=True):
        whole = check_grouped(x, experts, w, layer, used)
    k = weights[0].shape[-1]
    found = [recipe(format_named(w.format), whole, k) for w in weights]
    stacks = {next(iter(w.arrays.values())).shape[0] if check_weight("grouped_gated", w) else 1 for w in weights}
    if found[0] is None or found[0] != found[-1] or len(stacks) > 1 or x.ndim == 3:
        gate, up = composed.both(grouped_linear, x, experts, weights, layers, used)
        return _activate(gate[None], up[None], experts, weights[0], used, size, feeds)
    y = _products(x, experts, weights, layers, used, found[0], parts(found[0], k), add=True, gated=True)
    return _activate(y, y, experts, weights[0], used, size, feeds, offset=size)


def grouped_down(
    act: jax.Array | Fed,
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
    found, d = recipe(format_named(w.format), ranges, w.shape[-1]), w.shape[-2]
    if found is None:
        each = reference.grouped_linear_leaves(bare(act), experts, w, layer, used, ranges)
        return _folded(each, experts, weights, w, used)
    # So many columns at a time that the outputs of all experts, which are four bytes for each leaf, stay in bounds.
    step = max(BLOCK, SCRATCH // (4 * len(ranges) * experts.size) // BLOCK * BLOCK)
    total = None
    for begin in range(0, d, step):
        columns = (begin, min(begin + step, d))
        each = _products(act, experts, (w,), (layer,), used, found, ranges, columns=columns)
        total = _folded(each, experts, weights, w, used, begin, total)
    assert total is not None
    return total


def _folded(
    each: jax.Array,
    experts: jax.Array,
    weights: jax.Array,
    w: Weight,
    used: jax.Array,
    begin: int = 0,
    total: jax.Array | None = None,
) -> jax.Array:
    """float32 [leaves, R, D] from each [leaves, R, E', some of D] that begin at a column; the others as in `total`."""
    (leaves, rows, chosen, some), d = each.shape, w.shape[-2]
    constants = {"R": rows, "D": d, "BEGIN": begin, "SOME": some, "CHOSEN": chosen, "HELD": w.shape[0], "BLOCK": BLOCK}
    out = Out((leaves, rows, d), jnp.float32, alias=None if total is None else 4)
    arguments = (each, experts, weights, used, each if total is None else total)
    grid = (rows, -(-some // BLOCK), leaves)
    return launch(fold, arguments, (out,), grid, constants, warps=WARPS, stages=1)[0]


def _live(experts: jax.Array, w: Weight, used: jax.Array) -> jax.Array:
    """bool [R, E']: the pairs of real rows and of experts that are here."""
    return (jnp.arange(experts.shape[0])[:, None] < used) & (experts >= 0) & (experts < w.shape[0])


def _held(y: jax.Array, experts: jax.Array, w: Weight, used: jax.Array) -> jax.Array:
    """y [..., R, E', N] with zeros where there is nothing to compute: kernels leave that memory as it was."""
    return jnp.where(_live(experts, w, used)[..., None], y, 0)


def _activate(
    gate: jax.Array,  # [parts, R, E', STRIDE]
    up: jax.Array,
    experts: jax.Array,
    w: Weight,
    used: jax.Array,
    size: int,
    feeds: Sequence[Feed],
    offset: int = 0,
) -> jax.Array | Fed:
    """bf16 [R, E', size] of the sums over the parts, beside the operand of a reader; `up` begins at column `offset`."""
    stages, rows, chosen, stride = gate.shape
    given = _plan(feeds, rows * chosen, size)
    act, *operand = launch(
        activate,
        (gate, up, experts, given.bounds, used),
        (Out((rows, chosen, size), jnp.bfloat16), *given.outs),
        given.grid,
        {"P": rows * chosen, "N": size, "STRIDE": stride, "OFFSET": offset, "PARTS": stages}
        | {"CHOSEN": chosen, "HELD": w.shape[0]}
        | given.constants,
        warps=WARPS,
        stages=1,
    )
    return given.fed(act, *operand)


def _plan(feeds: Sequence[Feed], pairs: int, size: int) -> Plan:
    """For pairs that the first of the readers will read as `grouped_down` does."""
    for w, ranges in feeds:
        found = recipe(format_named(w.format), ranges or ((0, size),), size)
        form = found and form_of(found, _tile(found, pairs, w.shape[0]), pairs, ranges or parts(found, size))
        if form:
            return Plan(form, form.ranges, pairs)
    return Plan(None, ((0, size),), pairs)


def _tile(found: Recipe, pairs: int, held: int) -> Tile:
    """The tile for as many pairs as an expert has on average: more would not fill it, and cost registers."""
    return tile_for(architecture(), found, min(-(-pairs // held), MOST))


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
    columns: tuple[int, int] | None = None,
) -> jax.Array:
    """float32 [len(ranges), R, E', N] of one weight; undefined for pairs that are not live.

    `columns` are the first and the end of those of N that are wanted. With `add` the ranges are to be added, and there
    may be one sum in their place. With `gated`, which is with `add`, N are the outputs of gate and then those of up, in
    bfloat16 if they are sums.
    """
    (rows, chosen), held, k = experts.shape, weights[0].shape[0], x.shape[-1]
    pairs, matrices = rows * chosen, 2 if gated else 1
    begin, stop = columns or (0, check_gated(weights, layers) if gated else weights[0].shape[-2])
    outputs = stop - begin
    tile = _tile(found, pairs, held)
    place, members = (experts, experts) if rows == 1 else _tiles(experts, used, held, tile.rows)
    tiles, across = place.size, -(-outputs // tile.columns)
    in_turn = tiles * across >= PROGRAMS[architecture()]
    whole = in_turn and add
    each = 1
    if x.ndim == 3:
        flat = bare(x).reshape(-1, k)
        x, each = Fed(flat, x.operands) if isinstance(x, Fed) else flat, chosen
    given = operand_of(x, found, tile, used, ranges, each)
    fields, constants = fields_of(weights[0], found, given.factor)
    more, _ = fields_of(weights[-1], found, given.factor)
    constants |= given.constants
    constants |= {
        "LAYERS": fields[0].shape[0] if check_weight("grouped_linear", weights[0]) else 1,
        "HELD": held,
        "CHOSEN": chosen // each,
        "P": pairs,
        "EACH": chosen,
        "LEAVES": len(ranges),
        "MATRICES": matrices,
        "OFFSET": outputs if gated and len(weights) == 1 else 0,
        "BEGIN": begin,
        "OUTPUTS": outputs,
        "IN_TURN": in_turn,
        "ADD": whole,
    }
    dtype = jnp.bfloat16 if gated and whole else jnp.float32
    out = Out((1 if whole else len(ranges), rows, chosen, matrices * outputs), dtype)
    grid = (tiles, across, (1 if in_turn else len(ranges)) * matrices)
    routed = (experts, used, place, members)
    arguments = (given.values, given.factor, *fields, *more, given.bounds, *routed, layers[0], layers[-1])
    return launch(grouped, arguments, (out,), grid, constants, warps=tile.warps, stages=tile.stages)[0]


def _tiles(experts: jax.Array, used: jax.Array, held: int, size: int) -> tuple[jax.Array, jax.Array]:
    """(place, members) of tiles of up to `size` pairs, as in `triton_groups`."""
    rows, chosen = experts.shape
    pairs = rows * chosen
    if pairs <= STARTED:
        constants = {"P": pairs, "PPAD": 1 << (pairs - 1).bit_length(), "EACH": chosen, "HELD": held, "BR": size}
        outs = (Out((pairs,), jnp.int32), Out((pairs, size), jnp.int32))
        place, members = launch(started, (experts, used), outs, (pairs,), constants, warps=WARPS, stages=1)
        return place, members
    constants = {"P": pairs, "EACH": chosen, "HELD": held, "BLOCK": LISTED}
    each = (Out((held,), jnp.int32),)
    counts = launch(count, (experts, used), each, (held,), constants, warps=LISTED_WARPS, stages=1)[0]
    tiles = min(pairs, held) + pairs // size  # each expert's last tile may not be full
    outs = (Out((tiles,), jnp.int32), Out((tiles, size), jnp.int32))
    constants |= {"HPAD": 1 << (held - 1).bit_length(), "T": tiles, "BR": size}
    place, members = launch(group, (experts, used, counts), outs, (held,), constants, warps=LISTED_WARPS, stages=1)
    return place, members
