"""attention as LLVM IR: a chunk is one row and the query heads that share a key/value head, which read a page together.

Scores are tiles of `native.dot` with the heads as rows and the page's tokens as columns. What a chunk works on, its
float32 queries, the scores of a page and the accumulators, fits the first-level cache.
"""

from __future__ import annotations

from llvmlite import ir

from dgpp.kernels.lanes import LANES
from dgpp.kernels.native.blocks import registers, totals, unpack
from dgpp.kernels.native.dot import tile_name
from dgpp.kernels.native.emit import F32, I8, I16, I32, I64, PTR, VOID, Emit, Value, f32, i32, i64, lanes
from dgpp.kernels.native.exp import exp_f32, to_bf16
from dgpp.kernels.native.ffi import Frame, emit_handler
from dgpp.kernels.native.target import Target

NAME = "dgpp_attention_bf16"

# The words of a job.
Q, OUT, KEYS, VALUES, TABLE, POSITION, SLOT, KV_INDEX, RUNS, COUNT = range(10)
ROWS, USED, H, D, P, KV_HEADS, PAGES, SLOTS, PAGES_OF_SLOT, SCALE = range(10, 20)
POINTERS = (Q, OUT, KEYS, VALUES, TABLE, POSITION, SLOT, KV_INDEX, RUNS)


def attention_module(target: Target) -> ir.Module:
    """The module with the handler NAME.

    Operands q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, used; attribute scale, float32;
    results out and the caches, which must be the operands' own memory.
    """
    module = ir.Module("attention")
    _emit_live(module)
    _emit_page_at(module)
    _emit_softmax(module, target)
    for heads in range(1, target.heads + 1):
        for blocks in sorted({1, _blocks(target, heads)}):
            _emit_values(module, target, heads, blocks)
        _emit_run(module, target, heads)
    _emit_task(module, target)
    emit_handler(module, target, NAME, lambda e, frame: _emit_call(e, frame, target))
    return module


def _words(e: Emit, job: Value) -> list[Value]:
    return [e.get(e.at(job, I64, i), PTR if i in POINTERS else I64) for i in range(SCALE + 1)]


def _int(e: Emit, pointer: Value, index: Value) -> Value:
    return e.sext(e.get(pointer, I32, index), I64)


def _emit_live(module: ir.Module) -> None:
    """`attention_live(job, row) -> i1`: the row is used, and its position and slot lie in the table."""
    e = Emit(module, "attention_live", [PTR, I64], ir.IntType(1))
    job, row = e.args
    word = _words(e, job)
    position, slot = _int(e, word[POSITION], row), _int(e, word[SLOT], row)
    live = e.icmp_signed("<", row, word[USED])
    live = e.and_(live, e.icmp_unsigned("<", position, e.mul(word[PAGES_OF_SLOT], word[P])))
    e.ret(e.and_(live, e.icmp_unsigned("<", slot, word[SLOTS])))


def _emit_page_at(module: ir.Module) -> None:
    """`attention_page(job, row, j) -> i64`: the number of elements before page j of the row's slot in a layer."""
    e = Emit(module, "attention_page", [PTR, I64, I64], I64)
    job, row, j = e.args
    word = _words(e, job)
    entry = e.add(e.mul(_int(e, word[SLOT], row), word[PAGES_OF_SLOT]), j)
    page = e.high(i64(0), e.low(_int(e, word[TABLE], entry), e.sub(word[PAGES], i64(1))))
    e.ret(e.mul(page, e.mul(word[P], e.mul(word[KV_HEADS], word[D]))))


def _emit_softmax(module: ir.Module, target: Target) -> None:
    """`attention_softmax(scores, tokens, scale, state)`, one head, one page: dots become the weights p, in place.

    `tokens` is rounded up to a multiple of 16 with dots of -inf. `state` is (m, l), which move on, and the factor a.
    """
    e = Emit(module, "attention_softmax", [PTR, I64, F32, PTR])
    scores, tokens, scale, state = e.args
    width = target.width
    kind = ir.VectorType(F32, width)
    top, length = e.get(state, F32, 0), e.get(state, F32, 1)

    best = e.var(e.splat(top, width))
    with e.loop(i64(0), tokens, width) as t:
        score = e.fmul(e.wide(scores, width, t), e.splat(scale, width))
        e.put(score, e.at(scores, F32, t), align=4)
        held = e.load(best, typ=kind)
        # A NaN may get lost here. It comes back with its own weight, and makes l and so all of the output NaN.
        e.store(e.select(e.fcmp_ordered(">", score, held), score, held), best)
    held = e.load(best, typ=kind)
    new_top = e.extract_element(held, i32(0))
    for lane in range(1, width):
        score = e.extract_element(held, i32(lane))
        new_top = e.select(e.fcmp_ordered(">", score, new_top), score, new_top)

    sums = [e.var(lanes(f32(0.0), width)) for _ in range(registers(width))]
    with e.loop(i64(0), tokens, LANES) as t:
        for g, total in enumerate(sums):
            at = e.add(t, i64(g * width))
            weight = to_bf16(e, exp_f32(e, e.fsub(e.wide(scores, width, at), e.splat(new_top, width))))
            e.put(weight, e.at(scores, F32, at), align=4)
            e.store(e.fadd(e.load(total, typ=kind), weight), total)
    shrink = e.extract_element(exp_f32(e, e.splat(e.fsub(top, new_top), width)), i32(0))
    (total,) = totals(e, [[e.load(slot, typ=kind) for slot in sums]], width)
    e.put(new_top, state, 0)
    e.put(e.fadd(e.fmul(length, shrink), total), state, 1)
    e.put(shrink, state, 2)
    e.ret_void()


def _blocks(target: Target, heads: int) -> int:
    """Blocks of 16 values of v that fit in registers with all their accumulators: a power of two."""
    fitting = target.accumulators // (heads * registers(target.width))
    return max(size for size in (1, 2, 4) if size <= max(1, fitting))


def _values_name(heads: int, blocks: int) -> str:
    return f"attention_values_{heads}x{blocks}"


def _emit_values(module: ir.Module, target: Target, heads: int, blocks: int) -> None:
    """`(weights, stride, v, v_stride, tokens, states, acc, acc_stride)`: acc = rounded(acc * a) + sum of p_t * v_t."""
    e = Emit(module, _values_name(heads, blocks), [PTR, I64, PTR, I64, I64, PTR, PTR, I64])
    weights, stride, v, v_stride, tokens, states, acc, acc_stride = e.args
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
        shrink = e.splat(e.get(e.at(states, STATE, h), F32, 2), width)
        row = e.at(acc, F32, e.mul(i64(h), acc_stride))
        for g in each:
            kept = e.fmul(e.wide(row, width, g * width), shrink)
            e.put(e.fadd(kept, e.load(parts[h, g], typ=kind)), e.at(row, F32, g * width), align=4)
    e.ret_void()


STATE = ir.ArrayType(F32, 4)  # m, l and a of a head


def _emit_run(module: ir.Module, target: Target, heads: int) -> None:
    """`attention_run_{heads}(job, row, head)`: the outputs of `heads` query heads from `head` on."""
    e = Emit(module, f"attention_run_{heads}", [PTR, I64, I64])
    job, row, head = e.args
    word = _words(e, job)
    width = target.width
    dim, page = word[D], word[P]
    scale = e.get(e.at(job, I64, SCALE), F32)
    queries = e.array(F32, e.mul(dim, i64(heads)))
    scores = e.array(F32, e.mul(page, i64(heads)))
    states = e.array(STATE, i64(heads))
    first = e.mul(e.add(e.mul(row, word[H]), head), dim)
    out = e.at(word[OUT], F32, first)
    for h in range(heads):
        e.intrinsic("dot_convert", VOID, e.at(word[Q], I16, e.add(first, e.mul(i64(h), dim))),
                    e.at(queries, F32, e.mul(i64(h), dim)), dim)  # fmt: skip
        e.put(f32(float("-inf")), e.at(states, STATE, h), 0)
        e.put(f32(0.0), e.at(states, STATE, h), 1)
    with e.loop(i64(0), e.mul(dim, i64(heads)), width) as d:
        e.put(lanes(f32(0.0), width), e.at(out, F32, d), align=4)

    kv = e.mul(e.high(i64(0), e.low(_int(e, word[KV_INDEX], head), e.sub(word[KV_HEADS], i64(1)))), dim)
    token_stride = e.mul(word[KV_HEADS], dim)
    tokens_in_all = e.add(_int(e, word[POSITION], row), i64(1))
    with e.loop(i64(0), e.sdiv(e.add(tokens_in_all, e.sub(page, i64(1))), page)) as j:
        at = e.add(e.intrinsic("attention_page", I64, job, row, j), kv)
        keys, values = e.at(word[KEYS], I16, at), e.at(word[VALUES], I16, at)
        tokens = e.low(page, e.sub(tokens_in_all, e.mul(j, page)))
        padded = e.mul(e.sdiv(e.add(tokens, i64(LANES - 1)), i64(LANES)), i64(LANES))
        _emit_scores(e, target, heads, (queries, dim, keys, token_stride, tokens, scores, page))
        for h in range(heads):
            of_head = e.at(scores, F32, e.mul(i64(h), page))
            with e.loop(tokens, padded) as t:
                e.put(f32(float("-inf")), of_head, t)
            e.intrinsic("attention_softmax", VOID, of_head, padded, scale, e.at(states, STATE, h))
        size = _blocks(target, heads)
        whole = e.sub(dim, e.srem(dim, i64(size * LANES)))
        for blocks, start, stop in ((size, i64(0), whole), (1, whole, dim)):
            with e.loop(start, stop, blocks * LANES) as d:
                e.intrinsic(_values_name(heads, blocks), VOID, scores, page, e.at(values, I16, d), token_stride,
                            tokens, states, e.at(out, F32, d), dim)  # fmt: skip

    for h in range(heads):
        length = e.splat(e.get(e.at(states, STATE, h), F32, 1), width)
        row_out = e.at(out, F32, e.mul(i64(h), dim))
        with e.loop(i64(0), dim, width) as d:
            e.put(e.fdiv(e.wide(row_out, width, d), length), e.at(row_out, F32, d), align=4)
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


def _emit_task(module: ir.Module, target: Target) -> None:
    """`attention_task(job, chunk)`: one run of heads of one row."""
    e = Emit(module, "attention_task", [PTR, I32])
    job, chunk = e.args
    word = _words(e, job)
    row, run = e.sdiv(e.sext(chunk, I64), word[COUNT]), e.srem(e.sext(chunk, I64), word[COUNT])
    head, heads = _int(e, word[RUNS], e.mul(run, i64(2))), e.get(word[RUNS], I32, e.add(e.mul(run, i64(2)), i64(1)))
    with e.if_else(e.intrinsic("attention_live", ir.IntType(1), job, row)) as (live, padding):
        with live:
            for size in range(1, target.heads + 1):
                with e.if_then(e.icmp_signed("==", heads, i32(size))):
                    e.intrinsic(f"attention_run_{size}", VOID, job, row, head)
        with padding:
            out = e.at(word[OUT], F32, e.mul(e.add(e.mul(row, word[H]), head), word[D]))
            size = e.mul(e.mul(e.sext(heads, I64), word[D]), i64(4))
            e.intrinsic("llvm.memset.p0.i64", VOID, out, ir.Constant(I8, 0), size, ir.Constant(ir.IntType(1), 0))
    e.ret_void()


def _emit_call(e: Emit, frame: Frame, target: Target) -> None:
    rows, heads, dim = (frame.dim(0, axis) for axis in range(3))
    layers, pages, page, kv_heads = (frame.dim(3, axis) for axis in range(4))
    layer = e.high(i64(0), e.low(_int(e, frame.arg(5), i64(0)), e.sub(layers, i64(1))))
    base = e.mul(layer, e.mul(e.mul(pages, page), e.mul(kv_heads, dim)))
    used = e.high(i64(0), e.low(_int(e, frame.arg(10), i64(0)), rows))
    kv_index = frame.arg(9)
    runs = e.array(I32, e.mul(heads, i64(2)))
    count = _emit_runs(e, target, kv_index, heads, kv_heads, runs)
    job = e.words({
        Q: frame.arg(0), OUT: frame.ret(0), KEYS: e.at(frame.ret(1), I16, base), VALUES: e.at(frame.ret(2), I16, base),
        TABLE: frame.arg(6), POSITION: frame.arg(7), SLOT: frame.arg(8), KV_INDEX: kv_index, RUNS: runs, COUNT: count,
        ROWS: rows, USED: used, H: heads, D: dim, P: page, KV_HEADS: kv_heads, PAGES: pages, SLOTS: frame.dim(6, 0),
        PAGES_OF_SLOT: frame.dim(6, 1), SCALE: i64(0),
    })  # fmt: skip
    e.put(frame.attr_scalar(0, F32), e.at(job, I64, SCALE))
    word = _words(e, job)
    with e.loop(i64(0), used) as row, e.if_then(e.intrinsic("attention_live", ir.IntType(1), job, row)):
        position, size = _int(e, word[POSITION], row), e.mul(kv_heads, dim)
        at = e.add(
            e.intrinsic("attention_page", I64, job, row, e.sdiv(position, page)), e.mul(e.srem(position, page), size)
        )
        for number, cache in ((1, KEYS), (2, VALUES)):
            new = e.at(frame.arg(number), I16, e.mul(row, size))
            e.intrinsic("llvm.memcpy.p0.p0.i64", VOID, e.at(word[cache], I16, at), new, e.mul(size, i64(2)),
                        ir.Constant(ir.IntType(1), 0))  # fmt: skip
    chunks = e.trunc(e.mul(rows, count), I32)
    e.intrinsic("dgpp_parallel", VOID, e.module.globals["attention_task"], job, chunks)


def _emit_runs(e: Emit, target: Target, kv_index: Value, heads: Value, kv_heads: Value, runs: Value) -> Value:
    """Fills `runs` with (first head, heads) of neighbours with the same key/value head, and returns how many."""
    count = e.var(i64(-1))
    with e.loop(i64(0), heads) as head:
        last = e.load(count, typ=I64)
        size_at = e.add(e.mul(last, i64(2)), i64(1))
        joins = e.var(ir.Constant(ir.IntType(1), 0))
        with e.if_then(e.icmp_signed(">", head, i64(0))):
            same = e.icmp_signed("==", e.get(kv_index, I32, head), e.get(kv_index, I32, e.sub(head, i64(1))))
            room = e.icmp_signed("<", e.get(runs, I32, size_at), i32(target.heads))
            e.store(e.and_(same, room), joins)
        with e.if_else(e.load(joins, typ=ir.IntType(1))) as (join, begin):
            with join:
                e.put(e.add(e.get(runs, I32, size_at), i32(1)), runs, size_at)
            with begin:
                new = e.add(last, i64(1))
                e.put(e.trunc(head, I32), runs, e.mul(new, i64(2)))
                e.put(i32(1), runs, e.add(e.mul(new, i64(2)), i64(1)))
                e.store(new, count)
    return e.add(e.load(count, typ=I64), i64(1))
