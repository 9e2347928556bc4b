"""attention as LLVM IR: a chunk walks the pages of one row, with query heads that share a key/value head together.

Such heads are a run, and `attention.page` does the arithmetic of one. A chunk is all runs of a row, so that a page is
read once, or one run where there are too few rows for the threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from dgpp.kernels.attention.page import HEADS, STATE, L, M, emit_pages, page_name
from dgpp.kernels.lanes import LANES
from dgpp.kernels.native.emit import F32, I1, I8, I16, I32, I64, PTR, VOID, Emit, Value, f32, i32, i64, lanes
from dgpp.kernels.native.ffi import Frame, emit_handler
from dgpp.kernels.native.target import Target
from dgpp.kernels.native.threads import cores

NAME = "dgpp_attention_bf16"

# The words of a job.
Q, OUT, KEYS, VALUES, TABLE, POSITION, SLOT, KV_INDEX, RUNS, COUNT = range(10)  # RUNS: COUNT pairs (head, heads)
PARTS, USED, H, D, P, KV_HEADS, PAGES, SLOTS, PAGES_OF_SLOT, SCALE = range(10, 20)  # PARTS: chunks a row
ROWS_A_CORE = 2  # so many rows keep the threads busy without being cut
POINTERS = (Q, OUT, KEYS, VALUES, TABLE, POSITION, SLOT, KV_INDEX, RUNS)


def attention_module(target: Target) -> ir.Module:
    """The module with the handler NAME.

    Operands q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, used; attribute scale, float32;
    results out and the caches, which must be the operands' own memory.
    """
    module = ir.Module("attention")
    _emit_live(module)
    _emit_page_at(module)
    emit_pages(module, target)
    _emit_task(module, target)
    emit_handler(module, target, NAME, lambda e, frame: _emit_call(e, frame, target))
    return module


def _words(e: Emit, job: Value) -> list[Value]:
    return [e.get(e.at(job, I64, i), PTR if i in POINTERS else I64) for i in range(SCALE + 1)]


def _int(e: Emit, pointer: Value, index: Value) -> Value:
    return e.sext(e.get(pointer, I32, index), I64)


def _emit_live(module: ir.Module) -> None:
    """`attention_live(job, row) -> i1`: the row is used, and its position and slot lie in the table."""
    e = Emit(module, "attention_live", [PTR, I64], I1)
    job, row = e.args
    word = _words(e, job)
    position, slot = _int(e, word[POSITION], row), _int(e, word[SLOT], row)
    live = e.icmp_signed("<", row, word[USED])
    live = e.and_(live, e.icmp_unsigned("<", position, e.mul(word[PAGES_OF_SLOT], word[P])))
    e.ret(e.and_(live, e.icmp_unsigned("<", slot, word[SLOTS])))


def _emit_page_at(module: ir.Module) -> None:
    """`attention_page_at(job, row, j) -> i64`: the number of elements before page j of the row's slot in a layer."""
    e = Emit(module, "attention_page_at", [PTR, I64, I64], I64)
    job, row, j = e.args
    word = _words(e, job)
    entry = e.add(e.mul(_int(e, word[SLOT], row), word[PAGES_OF_SLOT]), j)
    page = e.high(i64(0), e.low(_int(e, word[TABLE], entry), e.sub(word[PAGES], i64(1))))
    e.ret(e.mul(page, e.mul(word[P], e.mul(word[KV_HEADS], word[D]))))


def _emit_task(module: ir.Module, target: Target) -> None:
    """`attention_task(job, chunk)`: the outputs of some runs of one row, +0 where it is padding."""
    e = Emit(module, "attention_task", [PTR, I32])
    job, chunk = e.args
    word = _words(e, job)
    row, part = e.sdiv(e.sext(chunk, I64), word[PARTS]), e.srem(e.sext(chunk, I64), word[PARTS])
    first = e.sdiv(e.mul(part, word[COUNT]), word[PARTS])
    stop = e.sdiv(e.mul(e.add(part, i64(1)), word[COUNT]), word[PARTS])
    head = _int(e, word[RUNS], e.mul(first, i64(2)))
    last = e.mul(e.sub(stop, i64(1)), i64(2))
    heads = e.sub(e.add(_int(e, word[RUNS], last), _int(e, word[RUNS], e.add(last, i64(1)))), head)
    size = e.mul(heads, word[D])
    at = e.mul(e.add(e.mul(row, word[H]), head), word[D])
    out = e.at(word[OUT], F32, at)
    e.intrinsic("llvm.memset.p0.i64", VOID, out, ir.Constant(I8, 0), e.mul(size, i64(4)), ir.Constant(I1, 0))
    with e.if_then(e.not_(e.intrinsic("attention_live", I1, job, row))):
        e.ret_void()

    queries = e.array(F32, size)
    scores = e.array(F32, e.mul(word[P], i64(HEADS)))
    states = e.array(F32, e.mul(e.sub(stop, first), i64(STATE)))
    with e.loop(i64(0), size, LANES) as d:  # D is a multiple of 16: all heads are one row
        e.intrinsic("dot_convert", VOID, e.at(word[Q], I16, e.add(at, d)), e.at(queries, F32, d), i64(LANES))
    with e.loop(i64(0), e.sub(stop, first)) as run:
        for field, start in ((M, float("-inf")), (L, 0.0)):
            state = e.add(e.mul(run, i64(STATE)), i64(field * HEADS))
            e.put(lanes(f32(start), HEADS), e.at(states, F32, state), align=4)

    stride, scale = e.mul(word[KV_HEADS], word[D]), e.get(e.at(job, I64, SCALE), F32)
    tokens_in_all = e.add(_int(e, word[POSITION], row), i64(1))
    with e.loop(i64(0), e.sdiv(e.add(tokens_in_all, e.sub(word[P], i64(1))), word[P])) as j:
        page = e.intrinsic("attention_page_at", I64, job, row, j)
        tokens = e.low(word[P], e.sub(tokens_in_all, e.mul(j, word[P])))
        with _each_run(e, word, first, stop, head) as (run, state, offset, count):
            kv = e.high(i64(0), e.low(_int(e, word[KV_INDEX], run), e.sub(word[KV_HEADS], i64(1))))
            kv_at = e.add(page, e.mul(kv, word[D]))
            keys, values = e.at(word[KEYS], I16, kv_at), e.at(word[VALUES], I16, kv_at)
            acc, query = e.at(out, F32, offset), e.at(queries, F32, offset)
            for size_ in range(1, target.heads + 1):
                with e.if_then(e.icmp_signed("==", count, i64(size_))):
                    state_at = e.at(states, F32, state)
                    operands = (keys, values, stride, tokens, query, word[D], scores, word[P], scale, state_at, acc)
                    e.intrinsic(page_name(size_), VOID, *operands)

    with _each_run(e, word, first, stop, head) as (_, state, offset, count), e.loop(i64(0), count) as h:
        length = e.splat(e.get(states, F32, e.add(state, e.add(h, i64(L * HEADS)))), target.width)
        acc = e.at(out, F32, e.add(offset, e.mul(h, word[D])))
        with e.loop(i64(0), word[D], target.width) as d:
            e.put(e.fdiv(e.wide(acc, target.width, d), length), e.at(acc, F32, d), align=4)
    e.ret_void()


@contextmanager
def _each_run(
    e: Emit, word: list[Value], first: Value, stop: Value, head: Value
) -> Iterator[tuple[Value, Value, Value, Value]]:
    """Loops over runs: (first head, where its state is, where its queries and sums are, how many heads)."""
    with e.loop(first, stop) as run:
        entry = e.mul(run, i64(2))
        begin, count = _int(e, word[RUNS], entry), _int(e, word[RUNS], e.add(entry, i64(1)))
        yield begin, e.mul(e.sub(run, first), i64(STATE)), e.mul(e.sub(begin, head), word[D]), count


def _emit_call(e: Emit, frame: Frame, target: Target) -> None:
    rows, heads, dim = (frame.dim(0, axis) for axis in range(3))
    layers, pages, page, kv_heads = (frame.dim(3, axis) for axis in range(4))
    layer = e.high(i64(0), e.low(_int(e, frame.arg(5), i64(0)), e.sub(layers, i64(1))))
    base = e.mul(layer, e.mul(e.mul(pages, page), e.mul(kv_heads, dim)))
    used = e.high(i64(0), e.low(_int(e, frame.arg(10), i64(0)), rows))
    kv_index = frame.arg(9)
    runs = e.array(I32, e.mul(heads, i64(2)))
    count = _emit_runs(e, target, kv_index, heads, runs)
    crowded = e.icmp_signed(">=", used, i64(ROWS_A_CORE * cores()))
    parts = e.select(crowded, i64(1), count)
    job = e.words({
        Q: frame.arg(0), OUT: frame.ret(0), KEYS: e.at(frame.ret(1), I16, base), VALUES: e.at(frame.ret(2), I16, base),
        TABLE: frame.arg(6), POSITION: frame.arg(7), SLOT: frame.arg(8), KV_INDEX: kv_index, RUNS: runs, COUNT: count,
        PARTS: parts, USED: used, H: heads, D: dim, P: page, KV_HEADS: kv_heads, PAGES: pages, SLOTS: frame.dim(6, 0),
        PAGES_OF_SLOT: frame.dim(6, 1), SCALE: i64(0),
    })  # fmt: skip
    e.put(frame.attr_scalar(0, F32), e.at(job, I64, SCALE))
    word = _words(e, job)
    with e.loop(i64(0), used) as row, e.if_then(e.intrinsic("attention_live", I1, job, row)):
        position, size = _int(e, word[POSITION], row), e.mul(kv_heads, dim)
        at = e.add(
            e.intrinsic("attention_page_at", I64, job, row, e.sdiv(position, page)), e.mul(e.srem(position, page), size)
        )
        for number, cache in ((1, KEYS), (2, VALUES)):
            new = e.at(frame.arg(number), I16, e.mul(row, size))
            e.intrinsic("llvm.memcpy.p0.p0.i64", VOID, e.at(word[cache], I16, at), new, e.mul(size, i64(2)),
                        ir.Constant(I1, 0))  # fmt: skip
    chunks = e.trunc(e.mul(rows, parts), I32)
    e.intrinsic("dgpp_parallel", VOID, e.module.globals["attention_task"], job, chunks)


def _emit_runs(e: Emit, target: Target, kv_index: Value, heads: Value, runs: Value) -> Value:
    """Fills `runs` with (first head, heads) of neighbours with the same key/value head, and returns how many."""
    count = e.var(i64(-1))
    with e.loop(i64(0), heads) as head:
        last = e.load(count, typ=I64)
        size_at = e.add(e.mul(last, i64(2)), i64(1))
        joins = e.var(ir.Constant(I1, 0))
        with e.if_then(e.icmp_signed(">", head, i64(0))):
            same = e.icmp_signed("==", e.get(kv_index, I32, head), e.get(kv_index, I32, e.sub(head, i64(1))))
            room = e.icmp_signed("<", e.get(runs, I32, size_at), i32(target.heads))
            e.store(e.and_(same, room), joins)
        with e.if_else(e.load(joins, typ=I1)) as (join, begin):
            with join:
                e.put(e.add(e.get(runs, I32, size_at), i32(1)), runs, size_at)
            with begin:
                new = e.add(last, i64(1))
                e.put(e.trunc(head, I32), runs, e.mul(new, i64(2)))
                e.put(i32(1), runs, e.add(e.mul(new, i64(2)), i64(1)))
                e.store(new, count)
    return e.add(e.load(count, typ=I64), i64(1))
