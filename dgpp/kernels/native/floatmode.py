"""The processor's float mode while our code runs: subnormal inputs and results count as zero, as on XLA's own threads.

XLA sets this mode on the threads it starts, but a handler may also run on the caller's thread, and our helper threads
start without it. So every handler sets it and puts the old mode back, and a helper sets it once for its life: the bits
do not depend on which thread runs a chunk. x86-64 has two bits for it in MXCSR (FTZ for results, DAZ for inputs),
aarch64 one in FPCR (FZ). They differ in one corner: a sum that rounds up to the smallest normal number is kept by
x86-64 and flushed by aarch64.
"""

from __future__ import annotations

from dgpp.kernels.native.emit import I32, I64, VOID, Emit, Value, i32, i64
from dgpp.kernels.native.target import Target

FTZ_AND_DAZ = 0x8040
FZ = 1 << 24


def flush_subnormals(e: Emit, target: Target) -> Value:
    """Emits the switch to that mode. Returns the mode that was."""
    if target.arch == "aarch64":
        mode = e.intrinsic("llvm.aarch64.get.fpcr", I64)
        e.intrinsic("llvm.aarch64.set.fpcr", VOID, e.or_(mode, i64(FZ)))
        return mode
    word = e.var(i32(0))
    e.intrinsic("llvm.x86.sse.stmxcsr", VOID, word)
    mode = e.get(word, I32)
    e.put(e.or_(mode, i32(FTZ_AND_DAZ)), word)
    e.intrinsic("llvm.x86.sse.ldmxcsr", VOID, word)
    return mode


def restore(e: Emit, target: Target, mode: Value) -> None:
    """Emits the switch back to `mode`."""
    if target.arch == "aarch64":
        e.intrinsic("llvm.aarch64.set.fpcr", VOID, mode)
    else:
        e.intrinsic("llvm.x86.sse.ldmxcsr", VOID, e.var(mode))
