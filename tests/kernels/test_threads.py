from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time

import pytest
from llvmlite import ir

from dgpp.kernels.native import threads
from dgpp.kernels.native.compile import engine
from dgpp.kernels.native.emit import I32, I64, PTR, VOID, Emit, i32, i64
from dgpp.kernels.native.floatmode import flush_subnormals, restore

CHUNKS = 100


@pytest.fixture(scope="module")
def counted() -> ctypes._FuncPointer:
    """`f(counters, chunks, rounds)` adds 1 to counters[i] for every chunk i, `rounds` times, by `dgpp_parallel`."""
    threads.start()
    module = ir.Module("test_threads")
    task = Emit(module, "test_count", [PTR, I32])
    counters, chunk = task.args
    with task.loop(i64(0), i64(200)):  # long enough that a helper gets its share
        task.atomic_rmw("add", task.at(counters, I32, CHUNKS), i32(1), "seq_cst")
    counter = task.at(counters, I32, task.sext(chunk, I64))
    task.put(task.add(task.get(counter, I32), i32(1)), counter)
    task.ret_void()
    loop = Emit(module, "test_rounds", [PTR, I32, I32])
    counters, chunks, rounds = loop.args
    with loop.loop(i64(0), loop.sext(rounds, I64)):
        loop.intrinsic("dgpp_parallel", VOID, module.globals["test_count"], counters, chunks)
    loop.ret_void()
    modes = Emit(module, "test_modes", [PTR])
    (found,) = modes.args
    before = flush_subnormals(modes, engine().target)
    during = flush_subnormals(modes, engine().target)
    restore(modes, engine().target, before)
    after = flush_subnormals(modes, engine().target)
    restore(modes, engine().target, before)
    for index, mode in enumerate((before, during, after)):
        modes.put(mode if mode.type == I64 else modes.zext(mode, I64), found, index)
    modes.ret_void()
    engine().load(module)
    return ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32)(engine().address("test_rounds"))


def run(counted: ctypes._FuncPointer, chunks: int, rounds: int) -> list[int]:
    counters = (ctypes.c_int32 * (CHUNKS + 1))()
    counted(ctypes.addressof(counters), chunks, rounds)
    assert counters[CHUNKS] == 200 * chunks * rounds
    return list(counters[:CHUNKS])


@pytest.mark.parametrize("chunks", [0, 1, 2, 3, CHUNKS])
def test_every_chunk_runs_once(counted: ctypes._FuncPointer, chunks: int) -> None:
    assert run(counted, chunks, 50) == [50] * chunks + [0] * (CHUNKS - chunks)


def test_more_callers_than_slots_all_finish(counted: ctypes._FuncPointer) -> None:
    results: list[list[int]] = []
    callers = [
        threading.Thread(target=lambda: results.append(run(counted, CHUNKS, 5))) for _ in range(2 * threads.SLOTS + 1)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert results == [[5] * CHUNKS] * len(callers)


def test_helpers_that_fell_asleep_are_woken(counted: ctypes._FuncPointer) -> None:
    pool = engine().address("dgpp_pool")
    sleepers = ctypes.c_int32.from_address(pool + threads.SLEEPERS)
    helpers = ctypes.c_int32.from_address(pool + threads.HELPERS).value
    assert helpers == threads.cores() - 1
    for _ in range(3):
        deadline = time.monotonic() + 10
        while sleepers.value < helpers:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert run(counted, CHUNKS, 2) == [2] * CHUNKS


def test_the_float_mode_is_put_back(counted: ctypes._FuncPointer) -> None:
    found = (ctypes.c_int64 * 3)()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine().address("test_modes"))(ctypes.addressof(found))
    before, during, after = found
    assert during != before  # Python's own threads keep subnormals
    assert after == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:RuntimeWarning", "ignore:.*fork:DeprecationWarning")
def test_a_forked_child_works_without_helpers(counted: ctypes._FuncPointer) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0 if run(counted, CHUNKS, 5) == [5] * CHUNKS else 1)
    deadline = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert ended == (child, 0)


def test_a_process_ends_while_its_kernels_are_running() -> None:
    program = """
import jax, jax.numpy as jnp
from dgpp.formats import Weight
from dgpp.kernels import select
linear = select("cpu").linear
w = Weight({"values": jnp.ones((512, 512), jnp.bfloat16)}, "bf16", (512, 512))
@jax.jit
def many(x, w):
    step = lambda i, x: linear(x, w, jnp.int32(0), jnp.int32(4)).astype(jnp.bfloat16)
    return jax.lax.fori_loop(0, 2000, step, x)
jax.block_until_ready(many(jnp.ones((4, 512), jnp.bfloat16), w))
running = many(jnp.ones((4, 512), jnp.bfloat16), w)
print("running")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (0, "running\n"), ended.stderr
