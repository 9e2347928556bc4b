"""linear on bf16 weights as LLVM IR: the columns cut into chunks for the threads, a chunk into tiles of `native.dot`.

x is turned into float32 once a call, a weight each time it is used. It comes from memory once: rows beyond the largest
tile walk the chunk again, out of the second-level cache.
"""

from __future__ import annotations

import math

from llvmlite import ir

from dgpp.kernels.lanes import LANES
from dgpp.kernels.native.dot import CACHE_LINE, tile_name
from dgpp.kernels.native.emit import F32, I1, I8, I16, I32, I64, PTR, VOID, Emit, Value, i64
from dgpp.kernels.native.ffi import Frame, emit_handler
from dgpp.kernels.native.target import Target
from dgpp.kernels.native.threads import cores

NAME = "dgpp_linear_bf16"
CHUNKS_A_CORE = 4  # so that a helper that comes late, or loses its core for a while, leaves little to wait for
CHUNK_BYTES = 256 * 1024  # of weights: stays in the second-level cache for the rows after the first tile

# The words of a job: what the handler hands to the threads.
X, X_STRIDE, W, K, N, ROWS, USED, OUT, RANGES, LEAVES, COLUMNS = range(11)
START, STOP, OFFSET = range(3)  # of one leaf in `ranges`; OFFSET is where it begins in a converted row


def linear_module(target: Target) -> ir.Module:
    """The module with the handler NAME.

    Operands x, w, layer, used; attribute ranges, int32 [leaves, 3] of (start, stop, offset); results out and the
    converted x, float32 [R, sum of the padded lengths of the leaves].
    """
    module = ir.Module("linear")
    _emit_task(module, target)
    emit_handler(module, target, NAME, lambda e, frame: _emit_call(e, frame, target))
    return module


def _leaf(e: Emit, ranges: Value, leaf: Value, field: int) -> Value:
    return e.sext(e.get(ranges, I32, e.add(e.mul(leaf, i64(3)), i64(field))), I64)


def _emit_task(module: ir.Module, target: Target) -> None:
    """`linear_task(job, chunk)`: all rows and leaves of the chunk's columns."""
    e = Emit(module, "linear_task", [PTR, I32])
    job, chunk = e.args
    kinds = {X: PTR, W: PTR, OUT: PTR, RANGES: PTR}
    word = [e.get(e.at(job, I64, i), kinds.get(i, I64)) for i in range(COLUMNS + 1)]
    first = e.mul(e.sext(chunk, I64), word[COLUMNS])
    stop = e.low(e.add(first, word[COLUMNS]), word[N])
    count = e.sub(stop, first)

    # The first tile is nobody's next one.
    begin = e.at(word[W], I16, e.mul(first, word[K]))
    with e.loop(i64(0), e.mul(e.low(count, i64(target.tiles[0].columns)), word[K]), CACHE_LINE // 2) as line:
        e.prefetch(e.at(begin, I16, line))

    def out_at(leaf: Value, row: Value, column: Value) -> Value:
        index = e.add(e.mul(e.add(e.mul(leaf, word[ROWS]), row), word[N]), column)
        return e.at(word[OUT], F32, index)

    with e.loop(i64(0), word[LEAVES]) as leaf, e.loop(word[USED], word[ROWS]) as row:
        nothing = [ir.Constant(I8, 0), e.mul(count, i64(4)), ir.Constant(I1, 0)]
        e.intrinsic("llvm.memset.p0.i64", VOID, out_at(leaf, row, first), *nothing)

    def tiles(rows: int, row: Value, first: Value, stop: Value, step: int) -> None:
        with e.loop(first, stop, step) as column, e.loop(i64(0), word[LEAVES]) as leaf:
            start = _leaf(e, word[RANGES], leaf, START)
            x = e.at(word[X], F32, e.add(e.mul(row, word[X_STRIDE]), _leaf(e, word[RANGES], leaf, OFFSET)))
            w = e.at(word[W], I16, e.add(e.mul(column, word[K]), start))
            following = e.add(e.mul(e.add(column, i64(step)), word[K]), e.mul(start, i64(step)))
            ahead = e.at(word[W], I16, following)
            length = e.sub(_leaf(e, word[RANGES], leaf, STOP), start)
            out = out_at(leaf, row, column)
            name = tile_name(rows, step)
            e.intrinsic(name, VOID, x, word[X_STRIDE], w, word[K], ahead, length, out, word[N])

    most = target.tiles[-1].rows
    with e.loop(i64(0), word[USED], most) as row:
        here = e.low(i64(most), e.sub(word[USED], row))
        for tile in target.tiles:
            with e.if_then(e.icmp_signed("==", here, i64(tile.rows))):
                whole = e.sub(stop, e.srem(count, i64(tile.columns)))
                tiles(tile.rows, row, first, whole, tile.columns)
                with e.loop(row, e.add(row, here)) as single:
                    tiles(1, single, whole, stop, 1)
    e.ret_void()


def _emit_call(e: Emit, frame: Frame, target: Target) -> None:
    x, w, out, converted = frame.arg(0), frame.arg(1), frame.ret(0), frame.ret(1)
    rows, k = frame.dim(0, 0), frame.dim(0, 1)
    layers, n = frame.dim(1, 0), frame.dim(1, 1)
    layer = e.sext(e.get(frame.arg(2), I32), I64)
    layer = e.high(i64(0), e.low(layer, e.sub(layers, i64(1))))
    w = e.at(w, I16, e.mul(layer, e.mul(n, k)))
    used = e.high(i64(0), e.low(e.sext(e.get(frame.arg(3), I32), I64), rows))
    ranges, size = frame.attr_array(0)
    leaves = e.sdiv(size, i64(3))
    last = e.sub(leaves, i64(1))
    length = e.sub(_leaf(e, ranges, last, STOP), _leaf(e, ranges, last, START))
    padded = e.mul(e.sdiv(e.add(length, i64(LANES - 1)), i64(LANES)), i64(LANES))
    stride = e.add(_leaf(e, ranges, last, OFFSET), padded)
    with e.loop(i64(0), used) as row, e.loop(i64(0), leaves) as leaf:
        at = e.add(e.mul(row, stride), _leaf(e, ranges, leaf, OFFSET))
        start = _leaf(e, ranges, leaf, START)
        x_at = e.at(x, I16, e.add(e.mul(row, k), start))
        e.intrinsic("dot_convert", VOID, x_at, e.at(converted, F32, at), e.sub(_leaf(e, ranges, leaf, STOP), start))

    step = math.lcm(*(tile.columns for tile in target.tiles))
    fair = e.sdiv(n, i64(CHUNKS_A_CORE * cores()))
    fitting = e.sdiv(i64(CHUNK_BYTES // 2), k)
    columns = e.mul(e.high(i64(1), e.sdiv(e.low(fair, fitting), i64(step))), i64(step))
    chunks = e.sdiv(e.add(n, e.sub(columns, i64(1))), columns)
    job = {X: converted, X_STRIDE: stride, W: w, K: k, N: n, ROWS: rows, USED: used, OUT: out}
    job |= {RANGES: ranges, LEAVES: leaves, COLUMNS: columns}
    e.intrinsic("dgpp_parallel", VOID, e.module.globals["linear_task"], e.words(job), e.trunc(chunks, I32))
