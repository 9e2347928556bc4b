"""One page of attention for one run as LLVM IR: scores, softmax and the sum of values, on a running state.

A run is up to HEADS query heads that share a key/value head. Its state is m, l and the last factor a of every head, and
the sums acc; its scores are tiles of `native.dot`, with the heads as rows and the page's tokens as columns.
"""

from __future__ import annotations

from llvmlite import ir

from dgpp.kernels.lanes import LANES
from dgpp.kernels.native.blocks import registers, totals, unpack
from dgpp.kernels.native.dot import tile_name
from dgpp.kernels.native.emit import F32, I16, I64, PTR, VOID, Emit, Value, f32, i32, i64, lanes
from dgpp.kernels.native.exp import exp_f32, to_bf16
from dgpp.kernels.native.target import Target

HEADS = 4  # the most heads of a run, on any target
M, L, A = range(3)  # the state of a run: HEADS float32 each
STATE = 3 * HEADS


def emit_pages(module: ir.Module, target: Target) -> None:
    """Adds the functions `page_name(heads)` for every number of heads that `target` joins."""
    for heads in range(1, target.heads + 1):
        for blocks in sorted({1, _blocks(target, heads)}):
            _emit_values(module, target, heads, blocks)
        _emit_softmax(module, target, heads)
        _emit_page(module, target, heads)


def page_name(heads: int) -> str:
    """The name of the function for a run of `heads`."""
    return f"attention_page_{heads}"


def _emit_page(module: ir.Module, target: Target, heads: int) -> None:
    """`(keys, values, stride, tokens, queries, dim, scores, page, scale, state, acc)`: the state moves on by a page.

    `stride` is from token to token in the cache; `scores` is room for [heads, page]; `acc` is [heads, dim].
    """
    e = Emit(module, page_name(heads), [PTR, PTR, I64, I64, PTR, I64, PTR, I64, F32, PTR, PTR])
    keys, values, stride, tokens, queries, dim, scores, page, scale, state, acc = e.args
    _emit_scores(e, target, heads, (queries, dim, keys, stride, tokens, scores, page))
    padded = e.mul(e.sdiv(e.add(tokens, i64(LANES - 1)), i64(LANES)), i64(LANES))
    for h in range(heads):
        with e.loop(tokens, padded) as t:
            e.put(f32(float("-inf")), e.at(scores, F32, e.mul(i64(h), page)), t)
    e.intrinsic(_softmax_name(heads), VOID, scores, page, padded, scale, state)
    size = _blocks(target, heads)
    whole = e.sub(dim, e.srem(dim, i64(size * LANES)))
    for blocks, start, stop in ((size, i64(0), whole), (1, whole, dim)):
        with e.loop(start, stop, blocks * LANES) as d:
            v, sums = e.at(values, I16, d), e.at(acc, F32, d)
            e.intrinsic(_values_name(heads, blocks), VOID, scores, page, v, stride, tokens, state, sums, dim)
    e.ret_void()


def _emit_scores(e: Emit, target: Target, heads: int, panel: tuple[Value, ...]) -> None:
    """The dots of `heads` queries with a page's tokens; the columns that no tile covers go one by one."""
    queries, dim, keys, stride, tokens, scores, page = panel
    columns = target.tiles[heads - 1].columns
    whole = e.sub(tokens, e.srem(tokens, i64(columns)))

    def tile(rows: int, step: int, head: int, t: Value) -> None:
        key, following = e.at(keys, I16, e.mul(t, stride)), e.at(keys, I16, e.mul(e.add(t, i64(step)), stride))
        query = e.at(queries, F32, e.mul(i64(head), dim))
        score = e.at(scores, F32, e.add(e.mul(i64(head), page), t))
        e.intrinsic(tile_name(rows, step), VOID, query, dim, key, stride, following, dim, score, page)

    with e.loop(i64(0), whole, columns) as t:
        tile(heads, columns, 0, t)
    with e.loop(whole, tokens) as t:
        for head in range(heads):
            tile(1, 1, head, t)


def _softmax_name(heads: int) -> str:
    return f"attention_softmax_{heads}"


def _emit_softmax(module: ir.Module, target: Target, heads: int) -> None:
    """`attention_softmax_{heads}(scores, stride, tokens, scale, state)`, one page: dots become weights p, in place.

    `tokens` is rounded up to a multiple of 16 with dots of -inf. `state` holds m and l of every head, which move on,
    and the factor a. The heads go side by side: one alone would wait for its own results.
    """
    e = Emit(module, _softmax_name(heads), [PTR, I64, I64, F32, PTR])
    scores, stride, tokens, scale, state = e.args
    width = target.width
    kind, of_heads = ir.VectorType(F32, width), ir.VectorType(F32, HEADS)
    rows = [e.at(scores, F32, e.mul(i64(h), stride)) for h in range(heads)]
    tops, lengths = (e.load(e.at(state, of_heads, field), typ=of_heads, align=4) for field in (M, L))

    best = [e.var(e.splat(e.extract_element(tops, i32(h)), width)) for h in range(heads)]
    factor = e.splat(scale, width)
    with e.loop(i64(0), tokens, width) as t:
        for row, slot in zip(rows, best, strict=True):
            score = e.fmul(e.wide(row, width, t), factor)
            e.put(score, e.at(row, F32, t), align=4)
            e.store(e.larger(score, e.load(slot, typ=kind)), slot)
    new_tops = ir.Constant(of_heads, [0.0] * HEADS)
    for h, slot in enumerate(best):
        held, size = e.load(slot, typ=kind), width
        while size > 1:
            size //= 2
            low, high = (e.shuffle(held, held, range(start, start + size)) for start in (0, size))
            held = e.larger(high, low)
        new_tops = e.insert_element(new_tops, e.extract_element(held, i32(0)), i32(h))

    sums = [[e.var(lanes(f32(0.0), width)) for _ in range(registers(width))] for _ in range(heads)]
    wide_tops = [e.splat(e.extract_element(new_tops, i32(h)), width) for h in range(heads)]
    with e.loop(i64(0), tokens, LANES) as t:
        for h, row in enumerate(rows):
            for g, total in enumerate(sums[h]):
                at = e.add(t, i64(g * width))
                weight = to_bf16(e, exp_f32(e, e.fsub(e.wide(row, width, at), wide_tops[h])))
                e.put(weight, e.at(row, F32, at), align=4)
                e.store(e.fadd(e.load(total, typ=kind), weight), total)
    shrink = exp_f32(e, e.fsub(tops, new_tops))
    added = ir.Constant(of_heads, [0.0] * HEADS)
    for h, total in enumerate(totals(e, [[e.load(slot, typ=kind) for slot in slots] for slots in sums], width)):
        added = e.insert_element(added, total, i32(h))
    for field, value in ((M, new_tops), (L, e.fadd(e.fmul(lengths, shrink), added)), (A, shrink)):
        e.store(value, e.at(state, of_heads, field), align=4)
    e.ret_void()


def _blocks(target: Target, heads: int) -> int:
    """Blocks of 16 values of v that fit in registers with all their accumulators: a power of two."""
    fitting = target.accumulators // (heads * registers(target.width))
    return max(size for size in (1, 2, 4) if size <= max(1, fitting))


def _values_name(heads: int, blocks: int) -> str:
    return f"attention_values_{heads}x{blocks}"


def _emit_values(module: ir.Module, target: Target, heads: int, blocks: int) -> None:
    """`(weights, stride, v, v_stride, tokens, state, acc, acc_stride)`: acc = rounded(acc * a) + sum of p_t * v_t."""
    e = Emit(module, _values_name(heads, blocks), [PTR, I64, PTR, I64, I64, PTR, PTR, I64])
    weights, stride, v, v_stride, tokens, state, acc, acc_stride = e.args
    width, each = target.width, range(blocks * registers(target.width))
    kind = ir.VectorType(F32, width)
    parts = {(h, g): e.var(lanes(f32(0.0), width)) for h in range(heads) for g in each}
    rows = [e.at(weights, F32, e.mul(i64(h), stride)) for h in range(heads)]
    with e.loop(i64(0), tokens) as t:
        token = e.at(v, I16, e.mul(t, v_stride))
        vs = [unpack(e, token, width, g) for g in each]
        for h in range(heads):
            weight = e.splat(e.get(rows[h], F32, t), width)
            for g in each:
                e.store(e.fused(weight, vs[g], e.load(parts[h, g], typ=kind)), parts[h, g])
    for h in range(heads):
        shrink = e.splat(e.get(state, F32, A * HEADS + h), width)
        row = e.at(acc, F32, e.mul(i64(h), acc_stride))
        for g in each:
            kept = e.fmul(e.wide(row, width, g * width), shrink)
            e.put(e.fadd(kept, e.load(parts[h, g], typ=kind)), e.at(row, F32, g * width), align=4)
    e.ret_void()
