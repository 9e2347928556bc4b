"""Sums of products of float32 rows and bfloat16 columns as LLVM IR, in the order of `dgpp.kernels.lanes`.

A tile holds the lanes of several outputs in registers and walks K once for all of them; a bfloat16 becomes a float32 on
the way, by a shift. Tiles are functions called by name, shared by the kernels: `dot_{rows}x{columns}`.
"""

from __future__ import annotations

from llvmlite import ir

from dgpp.kernels.lanes import LANES
from dgpp.kernels.native.blocks import emit_padded, padded, registers, totals, unpack
from dgpp.kernels.native.emit import F32, I16, I64, PTR, VOID, Emit, Value, f32, i64, lanes
from dgpp.kernels.native.target import Target, Tile

CACHE_LINE = 64  # bytes


def dot_module(target: Target) -> ir.Module:
    """The module with every tile of `target`, the tile of one output, and `dot_convert`."""
    module = ir.Module("dot")
    emit_padded(module)
    for tile in (*target.tiles, Tile(1, 1, registers(target.width))):
        _emit_tile(module, target, tile)
    _emit_convert(module, target)
    return module


def tile_name(rows: int, columns: int) -> str:
    """The name of a tile's function."""
    return f"dot_{rows}x{columns}"


def _emit_tile(module: ir.Module, target: Target, tile: Tile) -> None:
    """`(x, x_stride, w, w_stride, ahead, k, out, out_stride)`: the sums over k of `rows` rows of x, `columns` of w."""
    passes = range(0, registers(target.width), tile.groups)
    for first in passes:
        _emit_pass(module, target, tile, first)
    e = Emit(module, tile_name(tile.rows, tile.columns), [PTR, I64, PTR, I64, PTR, I64, PTR, I64])
    x, x_stride, w, w_stride, ahead, k, out, out_stride = e.args
    kind, outputs = ir.VectorType(F32, target.width), tile.rows * tile.columns
    acc = e.var(ir.Constant(ir.ArrayType(kind, outputs * registers(target.width)), ir.Undefined))
    for first in passes:
        e.intrinsic(_pass_name(tile, first), VOID, x, x_stride, w, w_stride, ahead, k, e.at(acc, kind, first))
    each = range(registers(target.width))
    blocks = [[e.get(acc, kind, output * len(each) + g, align=4) for g in each] for output in range(outputs)]
    for output, total in enumerate(totals(e, blocks, target.width)):
        row, column = divmod(output, tile.columns)
        e.put(total, e.at(out, F32, e.mul(i64(row), out_stride)), column)
    e.ret_void()


def _pass_name(tile: Tile, first: int) -> str:
    return f"{tile_name(tile.rows, tile.columns)}_{first}"


def _emit_pass(module: ir.Module, target: Target, tile: Tile, first: int) -> None:
    """`(x, x_stride, w, w_stride, ahead, k, acc)`: the lanes in registers `first` and on, stored at `acc`.

    `ahead` is where the weights that the next call will read begin. The processor's own prefetch starts anew in each of
    the short rows of w, so they are asked for here, in the order of their addresses.

    A function of its own, so that what one pass has summed does not compete with the next one for registers.
    """
    e = Emit(module, _pass_name(tile, first), [PTR, I64, PTR, I64, PTR, I64, PTR])
    e.function.attributes.add("noinline")
    x, x_stride, w, w_stride, ahead, k, out = e.args
    width, groups = target.width, range(first, first + tile.groups)
    rest = e.srem(k, i64(LANES))
    whole = e.sub(k, rest)
    x_rows = [e.at(x, F32, e.mul(i64(r), x_stride)) for r in range(tile.rows)]
    columns = [e.at(w, I16, e.mul(i64(c), w_stride)) for c in range(tile.columns)]
    zero = lanes(f32(0.0), width)
    acc = {(r, c, g): e.var(zero) for r in range(tile.rows) for c in range(tile.columns) for g in groups}

    def add_blocks(x_at: Value, w_blocks: list[Value]) -> None:
        for g in groups:
            ws = [unpack(e, block, width, g) for block in w_blocks]
            for r in range(tile.rows):
                xs = e.wide(x_rows[r], width, e.add(x_at, i64(g * width)))
                for c in range(tile.columns):
                    e.store(e.fused(xs, ws[c], e.load(acc[r, c, g], typ=xs.type)), acc[r, c, g])

    with e.loop(i64(0), whole, LANES) as j:
        if first == 0:
            for line in range(0, tile.columns * LANES, CACHE_LINE // 2):
                e.prefetch(e.at(ahead, I16, e.add(e.mul(j, i64(tile.columns)), i64(line))))
        add_blocks(j, [e.at(column, I16, j) for column in columns])
    with e.if_then(e.icmp_signed(">", rest, i64(0)), likely=False):
        add_blocks(whole, [padded(e, e.at(column, I16, whole), rest) for column in columns])
    for (r, c, g), slot in acc.items():
        index = (r * tile.columns + c) * registers(width) + g - first
        e.put(e.load(slot, typ=zero.type), out, index, align=4)
    e.ret_void()


def _emit_convert(module: ir.Module, target: Target) -> None:
    """`dot_convert(x, out, k)`: k values of a row as float32 blocks, the last filled up with zeros."""
    e = Emit(module, "dot_convert", [PTR, PTR, I64])
    x, out, k = e.args
    width = target.width
    rest = e.srem(k, i64(LANES))
    whole = e.sub(k, rest)

    def convert(block: Value, at: Value) -> None:
        for g in range(registers(width)):
            e.put(unpack(e, block, width, g), e.at(out, F32, e.add(at, i64(g * width))), align=4)

    with e.loop(i64(0), whole, LANES) as i:
        convert(e.at(x, I16, i), i)
    with e.if_then(e.icmp_signed(">", rest, i64(0)), likely=False):
        convert(padded(e, e.at(x, I16, whole), rest), whole)
    e.ret_void()
