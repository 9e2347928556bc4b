"""Fork and join for native kernels: `dgpp_parallel(task, data, chunks)` calls `task(data, i)` for every i < chunks.

The calling thread publishes the job in a free slot and works on it; helper threads that are awake join in. Every chunk
is claimed with one atomic addition, so the caller alone is enough to finish, and nothing waits for a helper that never
comes: not in a forked child (which has no helpers), not when four virtual devices call at once, not when all slots are
taken (the caller then simply loops). All that a caller waits for at the end is a helper in the middle of a chunk.

Why own threads: a decode step makes about 200 short calls. Handing a task to XLA's pool costs 0.3 us while its threads
happen to be spinning, and 50 to 65 us of the caller's time when they sleep (measured, two virtual cores). A helper that
has just worked spins for SPIN_NS before it sleeps, longer than the gaps within a step.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
import time

from llvmlite import ir

from dgpp.kernels.native.compile import engine
from dgpp.kernels.native.emit import I8, I32, I64, PTR, VOID, Emit, Value, i32, i64
from dgpp.kernels.native.floatmode import flush_subnormals
from dgpp.kernels.native.target import Target

SLOTS = 16  # jobs at a time
SPIN_NS = 2_000_000
PAUSES = 8  # between two looks at a word that another thread writes
PATIENCE = 1000  # such rounds that a caller waits for a helper before it offers its core to other threads
LINE = 64  # bytes: words that different threads write lie on different cache lines

# Byte offsets in a slot, which is FREE, being filled or emptied by its caller (CLOSED), or OPEN to helpers.
TASK, DATA, CHUNKS, STATE, NEXT, INSIDE = 0, 8, 16, LINE, 2 * LINE, 3 * LINE
SLOT_BYTES = 4 * LINE
FREE, CLOSED, OPEN = 0, 1, 2

# Byte offsets in the pool. SIGNAL counts published jobs: it is what idle helpers watch.
SIGNAL = 0
HELPERS, SLEEPERS, STOP = LINE, LINE + 4, LINE + 8
MUTEX, CONDITION = 2 * LINE, 4 * LINE  # of the C library, which nowhere needs more than 64 bytes for one
FIRST_SLOT = 6 * LINE
POOL_BYTES = FIRST_SLOT + SLOTS * SLOT_BYTES


class _Shared(Emit):
    """An `Emit` for the words that threads share; orderings are sequentially consistent unless `relaxed`."""

    def word(self, base: Value, offset: int, relaxed: bool = False) -> Value:
        return self.load_atomic(self.byte(base, offset), "monotonic" if relaxed else "seq_cst", align=4, typ=I32)

    def set_word(self, base: Value, offset: int, value: Value) -> None:
        self.atomic_rmw("xchg", self.byte(base, offset), value, "seq_cst")

    def add_word(self, base: Value, offset: int, value: int) -> Value:
        return self.atomic_rmw("add", self.byte(base, offset), i32(value), "seq_cst")

    def byte(self, base: Value, offset: int) -> Value:
        return self.at(base, I8, offset)

    def pause(self, target: Target) -> None:
        """A fraction of a microsecond of waiting that leaves a shared core to its other hardware thread."""
        with self.loop(i64(0), i64(PAUSES)):
            if target.arch == "aarch64":
                self.intrinsic("llvm.aarch64.hint", VOID, i32(1))
            else:
                self.intrinsic("llvm.x86.sse2.pause", VOID)

    def wake(self, pool: Value, name: str = "pthread_cond_signal") -> None:
        self.intrinsic("pthread_mutex_lock", I32, self.byte(pool, MUTEX))
        self.intrinsic(name, I32, self.byte(pool, CONDITION))
        self.intrinsic("pthread_mutex_unlock", I32, self.byte(pool, MUTEX))

    @property
    def pool(self) -> Value:
        return self.module.globals["dgpp_pool"]


def pool_module(target: Target) -> ir.Module:
    """The module with `dgpp_parallel`, the life of a helper thread, its end, and the pool they share."""
    module = ir.Module("threads")
    pool = ir.GlobalVariable(module, ir.ArrayType(I8, POOL_BYTES), "dgpp_pool")
    pool.align, pool.initializer = LINE, ir.Constant(pool.value_type, None)
    _emit_work(module)
    _emit_parallel(module, target)
    _emit_helper(module, target)
    stop = _Shared(module, "dgpp_stop", [])
    stop.set_word(stop.pool, STOP, i32(1))
    stop.add_word(stop.pool, SIGNAL, 1)
    stop.wake(stop.pool, "pthread_cond_broadcast")
    stop.ret_void()
    return module


def _emit_work(module: ir.Module) -> None:
    """`dgpp_work(slot)`: claims and runs chunks until none is left."""
    e = _Shared(module, "dgpp_work", [PTR])
    (slot,) = e.args
    claim, run, done = (e.append_basic_block(name) for name in ("claim", "run", "done"))
    task, data, chunks = e.get(e.byte(slot, TASK), PTR), e.get(e.byte(slot, DATA), PTR), e.word(slot, CHUNKS)
    e.branch(claim)
    e.position_at_end(claim)
    chunk = e.add_word(slot, NEXT, 1)
    e.cbranch(e.icmp_signed("<", chunk, chunks), run, done)
    e.position_at_end(run)
    e.call_pointer(task, data, chunk)
    e.branch(claim)
    e.position_at_end(done)
    e.ret_void()


def _emit_parallel(module: ir.Module, target: Target) -> None:
    e = _Shared(module, "dgpp_parallel", [PTR, PTR, I32])
    task, data, chunks = e.args
    alone, search, found = (e.append_basic_block(name) for name in ("alone", "search", "found"))
    few = e.icmp_signed("<=", chunks, i32(1))
    e.cbranch(e.or_(few, e.icmp_signed("==", e.word(e.pool, HELPERS), i32(0))), alone, search)

    e.position_at_end(search)
    slot = e.var(e.byte(e.pool, FIRST_SLOT))
    with e.loop(i64(0), i64(SLOTS)) as index:
        candidate = e.at(e.byte(e.pool, FIRST_SLOT), ir.ArrayType(I8, SLOT_BYTES), index)
        e.store(candidate, slot)
        taken = e.cmpxchg(e.byte(candidate, STATE), i32(FREE), i32(CLOSED), "seq_cst")
        following = e.append_basic_block("following")
        e.cbranch(e.extract_value(taken, 1), found, following)
        e.position_at_end(following)
    e.branch(alone)

    e.position_at_end(alone)
    with e.loop(i64(0), e.sext(chunks, I64)) as index:
        e.call_pointer(task, data, e.trunc(index, I32))
    e.ret_void()

    e.position_at_end(found)
    slot = e.load(slot, typ=PTR)
    e.put(task, e.byte(slot, TASK))
    e.put(data, e.byte(slot, DATA))
    e.put(chunks, e.byte(slot, CHUNKS))
    e.set_word(slot, NEXT, i32(0))
    e.set_word(slot, STATE, i32(OPEN))
    e.add_word(e.pool, SIGNAL, 1)
    # A helper counts itself a sleeper before its last look at SIGNAL, so one of the two sees the other.
    with e.if_then(e.icmp_signed(">", e.word(e.pool, SLEEPERS), i32(0)), likely=False):
        e.wake(e.pool)
    e.intrinsic("dgpp_work", VOID, slot)
    # Likewise a helper counts itself inside before its last look at STATE: after CLOSED, whoever is not counted stays
    # out, and `data`, which lives on the caller's stack, is safe to go once the count is zero.
    e.set_word(slot, STATE, i32(CLOSED))
    check, wait, free = (e.append_basic_block(name) for name in ("check", "wait", "free"))
    rounds = e.var(i32(0))
    e.branch(check)
    e.position_at_end(check)
    e.cbranch(e.icmp_signed("==", e.word(slot, INSIDE), i32(0)), free, wait)
    e.position_at_end(wait)
    e.pause(target)
    e.store(e.add(e.load(rounds, typ=I32), i32(1)), rounds)
    # Not earlier: on a busy machine a core that was offered comes back milliseconds later.
    with e.if_then(e.icmp_signed(">", e.load(rounds, typ=I32), i32(PATIENCE)), likely=False):
        e.intrinsic("sched_yield", I32)
    e.branch(check)
    e.position_at_end(free)
    e.set_word(slot, STATE, i32(FREE))
    e.ret_void()


def _emit_helper(module: ir.Module, target: Target) -> None:
    """`dgpp_helper()`: looks for open jobs, spins, sleeps, until `dgpp_stop`."""
    e = _Shared(module, "dgpp_helper", [])
    flush_subnormals(e, target)
    look, idle, tired, end = (e.append_basic_block(name) for name in ("look", "idle", "tired", "end"))
    rested = e.var(_now(e))  # when this thread last had work
    seen = e.var(i32(0))
    e.branch(look)

    e.position_at_end(look)
    e.store(e.word(e.pool, SIGNAL), seen)
    with e.loop(i64(0), i64(SLOTS)) as index:
        slot = e.at(e.byte(e.pool, FIRST_SLOT), ir.ArrayType(I8, SLOT_BYTES), index)
        is_open = e.icmp_signed("==", e.word(slot, STATE, relaxed=True), i32(OPEN))
        more = e.icmp_signed("<", e.word(slot, NEXT, relaxed=True), e.word(slot, CHUNKS, relaxed=True))
        with e.if_then(e.and_(is_open, more)):
            e.add_word(slot, INSIDE, 1)
            with e.if_then(e.icmp_signed("==", e.word(slot, STATE), i32(OPEN))):
                # A caller wakes one sleeper, and whoever finds work wakes the next: the caller pays for one wake only.
                with e.if_then(e.icmp_signed(">", e.word(e.pool, SLEEPERS), i32(0)), likely=False):
                    e.wake(e.pool)
                e.intrinsic("dgpp_work", VOID, slot)
                e.store(_now(e), rested)
            e.add_word(slot, INSIDE, -1)
    e.branch(idle)

    e.position_at_end(idle)
    stay, quiet = e.append_basic_block("stay"), e.append_basic_block("quiet")
    e.cbranch(e.icmp_signed("!=", e.word(e.pool, STOP), i32(0)), end, stay)
    e.position_at_end(stay)
    e.pause(target)
    e.cbranch(e.icmp_signed("==", e.word(e.pool, SIGNAL), e.load(seen, typ=I32)), quiet, look)
    e.position_at_end(quiet)
    spent = e.sub(_now(e), e.load(rested, typ=I64))
    e.cbranch(e.icmp_signed("<", spent, i64(SPIN_NS)), idle, tired)

    e.position_at_end(tired)
    e.intrinsic("pthread_mutex_lock", I32, e.byte(e.pool, MUTEX))
    e.add_word(e.pool, SLEEPERS, 1)
    check, sleep, awake = (e.append_basic_block(name) for name in ("check", "sleep", "awake"))
    e.branch(check)
    e.position_at_end(check)
    e.cbranch(e.icmp_signed("==", e.word(e.pool, SIGNAL), e.load(seen, typ=I32)), sleep, awake)
    e.position_at_end(sleep)
    e.intrinsic("pthread_cond_wait", I32, e.byte(e.pool, CONDITION), e.byte(e.pool, MUTEX))
    e.branch(check)
    e.position_at_end(awake)
    e.add_word(e.pool, SLEEPERS, -1)
    e.intrinsic("pthread_mutex_unlock", I32, e.byte(e.pool, MUTEX))
    e.store(_now(e), rested)
    e.branch(look)

    e.position_at_end(end)
    e.ret_void()


def _now(e: Emit) -> Value:
    """Nanoseconds of the monotonic clock."""
    pair = e.var(ir.Constant(ir.ArrayType(I64, 2), None))
    e.intrinsic("clock_gettime", I32, i32(time.CLOCK_MONOTONIC), pair)
    return e.add(e.mul(e.get(pair, I64), i64(10**9)), e.get(pair, I64, 1))


def cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def start() -> None:
    """Compiles the pool and starts one helper for each core but one; a second call does nothing."""
    engine().load(pool_module(engine().target))
    _reset()
    life = ctypes.CFUNCTYPE(None)(engine().address("dgpp_helper"))
    helpers = [threading.Thread(target=life, name="dgpp-helper", daemon=True) for _ in range(cores() - 1)]
    for helper in helpers:
        helper.start()
    ctypes.c_int32.from_address(engine().address("dgpp_pool") + HELPERS).value = len(helpers)
    atexit.register(_stop, helpers)
    os.register_at_fork(after_in_child=_reset)


def _reset() -> None:
    """An empty pool without helpers: at the start, and in a forked child, where they do not exist."""
    pool = engine().address("dgpp_pool")
    ctypes.memset(pool, 0, POOL_BYTES)
    libc = ctypes.CDLL(None)
    libc.pthread_mutex_init(ctypes.c_void_p(pool + MUTEX), None)
    libc.pthread_cond_init(ctypes.c_void_p(pool + CONDITION), None)


def _stop(helpers: list[threading.Thread]) -> None:
    ctypes.CFUNCTYPE(None)(engine().address("dgpp_stop"))()
    for helper in helpers:
        helper.join()
