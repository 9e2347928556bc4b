"""A little on top of llvmlite's builder, so that a kernel written in LLVM IR reads like the loop it is.

Variables are stack slots: LLVM's first passes turn them into registers, so no phi nodes are written here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
F32 = ir.FloatType()
PTR = ir.PointerType()
VOID = ir.VoidType()
NULL = ir.Constant(PTR, None)

Value = Any  # llvmlite has no annotations


def i64(number: int) -> Value:
    """A 64-bit constant."""
    return ir.Constant(I64, number)


def i32(number: int) -> Value:
    """A 32-bit constant."""
    return ir.Constant(I32, number)


def f32(number: float) -> Value:
    """A float32 constant; `number` must be one exactly (pass `float(np.float32(x))`)."""
    return ir.Constant(F32, number)


def lanes(scalar: Value, width: int) -> Value:
    """A vector constant with `width` copies of the constant `scalar`."""
    return ir.Constant(ir.VectorType(scalar.type, width), [scalar.constant] * width)


class Emit(ir.IRBuilder):
    """A builder at the start of a new function `name(*args)` of `module`."""

    def __init__(self, module: ir.Module, name: str, args: Sequence[ir.Type], result: ir.Type = VOID) -> None:
        function = ir.Function(module, ir.FunctionType(result, args), name)
        super().__init__(function.append_basic_block("entry"))

    @property
    def args(self) -> tuple[Value, ...]:
        """The function's arguments."""
        return tuple(self.function.args)

    def intrinsic(self, name: str, result: ir.Type, *args: Value) -> Value:
        """A call of a function known by name: an LLVM intrinsic, another function of ours, or the C library's."""
        function = self.module.globals.get(name)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(result, [arg.type for arg in args]), name)
        return super().call(function, args)

    def call_pointer(self, function: Value, *args: Value) -> None:
        """`((void (*)(...))function)(*args)`."""
        kind = ir.FunctionType(VOID, [arg.type for arg in args])
        # Only a pointer with a pointee type can be called, and llvmlite makes one of an integer.
        self.call(self.inttoptr(self.ptrtoint(function, I64), kind.as_pointer()), args)

    def var(self, value: Value) -> Value:
        """A new variable holding `value`."""
        with self.goto_entry_block():
            slot = self.array(value.type)
        self.store(value, slot)
        return slot

    def array(self, kind: ir.Type, count: Value = None) -> Value:
        """Uninitialized space on the stack for `count` values, until the function returns: not for use in a loop."""
        slot = self.alloca(kind, count)
        slot.type = PTR  # llvmlite still gives it a typed pointer, which refuses other views of the memory
        return slot

    def get(self, pointer: Value, kind: ir.Type, index: Value = 0, align: int | None = None) -> Value:
        """`((kind *)pointer)[index]`."""
        return self.load(self.at(pointer, kind, index), typ=kind, align=align)

    def put(self, value: Value, pointer: Value, index: Value = 0, align: int | None = None) -> None:
        """`((typeof(value) *)pointer)[index] = value`."""
        self.store(value, self.at(pointer, value.type, index), align=align)

    def at(self, pointer: Value, kind: ir.Type, index: Value) -> Value:
        """`(kind *)pointer + index`."""
        index = i64(index) if isinstance(index, int) else index
        return self.gep(pointer, [index], source_etype=kind)

    def words(self, values: dict[int, Value]) -> Value:
        """A new array of 8-byte words on the stack with `values` by index: what a job hands to its threads."""
        array = self.var(ir.Constant(ir.ArrayType(I64, len(values)), None))
        for index, value in values.items():
            self.put(value, self.at(array, I64, index))
        return array

    @contextmanager
    def loop(self, start: Value, stop: Value, step: int = 1) -> Iterator[Value]:
        """`for (i = start; i < stop; i += step)` over 64-bit integers."""
        slot = self.var(start)
        head = self.append_basic_block("head")
        self.branch(head)
        self.position_at_end(head)
        index = self.load(slot, typ=I64)
        body, done = self.append_basic_block("body"), self.append_basic_block("done")
        self.cbranch(self.icmp_signed("<", index, stop), body, done)
        self.position_at_end(body)
        yield index
        self.store(self.add(index, i64(step)), slot)
        self.branch(head)
        self.position_at_end(done)

    def fused(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c with one rounding, on vectors of float32."""
        return self.intrinsic(f"llvm.fma.v{a.type.count}f32", a.type, a, b, c)

    def prefetch(self, pointer: Value) -> None:
        """Asks for the cache line at `pointer` (any address is allowed) to be read into the nearest cache."""
        self.intrinsic("llvm.prefetch.p0", VOID, pointer, i32(0), i32(3), i32(1))

    def low(self, a: Value, b: Value) -> Value:
        """The smaller of two signed integers."""
        return self.select(self.icmp_signed("<", a, b), a, b)

    def high(self, a: Value, b: Value) -> Value:
        """The larger of two signed integers."""
        return self.select(self.icmp_signed(">", a, b), a, b)

    def larger(self, a: Value, b: Value) -> Value:
        """The larger of two floats or vectors of them; b where either is NaN."""
        return self.select(self.fcmp_ordered(">", a, b), a, b)

    def wide(self, pointer: Value, width: int, index: Value = 0) -> Value:
        """`width` float32 from `pointer + index` elements."""
        return self.load(self.at(pointer, F32, index), typ=ir.VectorType(F32, width), align=4)

    def splat(self, scalar: Value, width: int) -> Value:
        """A vector of `width` copies of `scalar`."""
        kind = ir.VectorType(scalar.type, width)
        one = self.insert_element(ir.Constant(kind, ir.Undefined), scalar, i32(0))
        return self.shuffle(one, one, [0] * width)

    def shuffle(self, a: Value, b: Value, picks: Sequence[int]) -> Value:
        """The elements `picks` of a and b put one after the other."""
        return self.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(picks)), list(picks)))
