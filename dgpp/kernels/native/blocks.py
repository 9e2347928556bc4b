"""Sixteen bfloat16 as float32 registers, and the halving tree of `dgpp.kernels.lanes` on them.

A block of 16 values is 16 / width registers, in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from dgpp.kernels.lanes import LANES
from dgpp.kernels.native.emit import F32, I16, I32, I64, PTR, VOID, Emit, Value, i32, i64, lanes

NARROW = 4  # float32 in 128 bits
Sum = tuple[int, int]  # (which sum, which lane of it)


def registers(width: int) -> int:
    """Registers in a block."""
    return LANES // width


def unpack(e: Emit, pointer: Value, width: int, register: int) -> Value:
    """One register of the 16 bfloat16 at `pointer`. A bfloat16 is the upper half of its float32."""
    words = ir.VectorType(I32, width)
    halves = e.load(e.at(pointer, I16, register * width), typ=ir.VectorType(I16, width), align=2)
    return e.bitcast(e.shl(e.zext(halves, words), lanes(i32(16), width)), ir.VectorType(F32, width))


def emit_padded(module: ir.Module) -> None:
    """Adds `padded(from, count, to)`: `count` < 16 bfloat16, filled up with zeros to a block at `to`."""
    e = Emit(module, "padded", [PTR, I64, PTR])
    e.function.attributes.add("noinline")
    source, count, block = e.args
    e.put(ir.Constant(ir.VectorType(I16, LANES), [0] * LANES), block, align=2)
    with e.loop(i64(0), count) as i:
        e.put(e.get(source, I16, i), block, i)
    e.ret_void()


def padded(e: Emit, pointer: Value, count: Value) -> Value:
    """The last `count` < 16 bfloat16 of a row, as a block on the stack."""
    block = e.var(ir.Constant(ir.ArrayType(I16, LANES), ir.Undefined))
    e.intrinsic("padded", VOID, pointer, count, block)
    return block


def totals(e: Emit, blocks: Sequence[Sequence[Value]], width: int) -> list[Value]:
    """The sum of each block of float32 registers, by the tree: one scalar each.

    A step adds lane l + s to lane l. Where these are two registers it is one addition; where they are halves of one,
    two registers share it, so that many sums cost little more than one.
    """
    held: list[tuple[Value, list[Sum]]] = [
        (value, [(number, register * width + i) for i in range(width)])
        for number, block in enumerate(blocks)
        for register, value in enumerate(block)
    ]
    step = LANES
    while step > 1:
        step //= 2
        held = _stepped(e, held, step)
    place = {number: (value, i) for value, sums in held for i, (number, _) in enumerate(sums)}
    return [e.extract_element(value, i32(i)) for value, i in (place[n] for n in range(len(blocks)))]


def _stepped(e: Emit, held: list[tuple[Value, list[Sum]]], step: int) -> list[tuple[Value, list[Sum]]]:
    """The registers after adding lane l + step to every lane l < step."""
    upper = {tuple(sums): value for value, sums in held}
    after, within = [], []
    for value, sums in held:
        if all(lane >= step for _, lane in sums):
            continue  # added to its partner
        partner = upper.get(tuple((number, lane + step) for number, lane in sums))
        if partner is not None:
            after.append((e.fadd(value, partner), sums))
        else:
            within.append((value, sums))
    # A register of more than 128 bits is only cut in half: moving lanes across its 128-bit parts is what costs.
    pairs = 1 if within and len(within[0][1]) > NARROW else 2
    for i in range(0, len(within), pairs):
        # One that is left over is paired with itself, so that all stay of one length.
        (a, a_sums), (b, b_sums) = within[i], within[min(i + pairs, len(within)) - 1]
        sums = a_sums if pairs == 1 else a_sums + b_sums
        low = [(number, lane) for number, lane in sums if lane < step]
        first = [sums.index(sum_) for sum_ in low]
        second = [sums.index((number, lane + step)) for number, lane in low]
        after.append((e.fadd(e.shuffle(a, b, first), e.shuffle(a, b, second)), low))
    return after
