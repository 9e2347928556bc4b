"""Custom calls whose handler is machine code: XLA calls it directly, without Python and without the GIL on the way.

Layout of the structs: `xla/ffi/api/c_api.h`, shipped with jaxlib (`jax.ffi.include_dir()`). It is the same in jaxlib
0.10.2, 0.11.2 and 0.12.0.1; the header appends fields only at the end of a struct, and versions the rest.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable

import jax
from llvmlite import ir

from dgpp.kernels.native import threads
from dgpp.kernels.native.compile import engine
from dgpp.kernels.native.emit import I32, I64, NULL, PTR, Emit, Value, i32, i64
from dgpp.kernels.native.floatmode import flush_subnormals, restore
from dgpp.kernels.native.target import Target

# Indices of the 8-byte words of XLA_FFI_CallFrame. `args`, `rets` and `attrs` are structs within it.
EXTENSION, STAGE = 1, 4
ARGS, RETS, ATTRS = 9, 14, 20  # the words args.args, rets.rets, attrs.attrs: arrays of pointers
BUFFER_DATA, BUFFER_DIMS = 3, 5  # of XLA_FFI_Buffer
SCALAR_VALUE, ARRAY_SIZE, ARRAY_DATA = 1, 1, 2  # of XLA_FFI_Scalar and XLA_FFI_Array
METADATA = 3  # of XLA_FFI_Metadata_Extension, after its three-word base, whose second word is the type
METADATA_TYPE, EXECUTE = 1, 3  # enum values
VERSION, TRAITS, TYPE_ID = 3, 4, 5  # of XLA_FFI_Metadata; the version's two int32 share a word
API_VERSION = (0, 1)  # (major, minor): the oldest that XLA accepts has all that is used here


class Frame:
    """The call frame inside a handler: buffers and attributes by number."""

    def __init__(self, e: Emit, frame: Value) -> None:
        self._e, self._frame = e, frame

    def _word(self, struct: Value, index: int, kind: ir.Type = PTR) -> Value:
        return self._e.get(self._e.at(struct, I64, index), kind)

    def _buffer(self, table: int, number: int) -> Value:
        return self._word(self._word(self._frame, table), number)

    def arg(self, number: int) -> Value:
        """The data pointer of an operand."""
        return self._word(self._buffer(ARGS, number), BUFFER_DATA)

    def ret(self, number: int) -> Value:
        """The data pointer of a result."""
        return self._word(self._buffer(RETS, number), BUFFER_DATA)

    def dim(self, number: int, axis: int) -> Value:
        """The size of an operand's axis."""
        return self._word(self._word(self._buffer(ARGS, number), BUFFER_DIMS), axis, I64)

    def attr_array(self, number: int) -> tuple[Value, Value]:
        """(data, size) of an array attribute; attributes are numbered in the order of their names."""
        array = self._word(self._word(self._frame, ATTRS), number)
        return self._word(array, ARRAY_DATA), self._word(array, ARRAY_SIZE, I64)

    def attr_scalar(self, number: int, kind: ir.Type) -> Value:
        """The value of a scalar attribute."""
        scalar = self._word(self._word(self._frame, ATTRS), number)
        return self._e.get(self._word(scalar, SCALAR_VALUE), kind)


def emit_handler(module: ir.Module, target: Target, name: str, body: Callable[[Emit, Frame], None]) -> None:
    """Adds the handler `name` to `module`: it answers XLA's question about itself, and otherwise runs `body`."""
    e = Emit(module, name, [PTR], PTR)
    (frame,) = e.args
    extension = e.get(e.at(frame, I64, EXTENSION), PTR)
    asked = e.icmp_unsigned("!=", e.ptrtoint(extension, I64), i64(0))
    with e.if_then(asked), e.if_then(e.icmp_signed("==", e.get(e.at(extension, I64, 1), I32), i32(METADATA_TYPE))):
        metadata = e.get(e.at(extension, I64, METADATA), PTR)
        for half, version in enumerate(API_VERSION):
            e.put(i32(version), e.at(metadata, I64, VERSION), half)
        e.put(i32(0), e.at(metadata, I64, TRAITS))
        e.put(i64(0), e.at(metadata, I64, TYPE_ID))
        e.ret(NULL)
    with e.if_then(e.icmp_signed("!=", e.get(e.at(frame, I64, STAGE), I32), i32(EXECUTE))):
        e.ret(NULL)
    mode = flush_subnormals(e, target)
    body(e, Frame(e, frame))
    restore(e, target, mode)
    e.ret(NULL)


def register(name: str, *builders: Callable[[Target], ir.Module]) -> None:
    """Compiles the modules of `builders`, each once, and makes the handler `name` a custom call target of the CPU.

    Any number of threads may trace, and so come here, at a time.
    """
    with _registering:
        threads.start()
        for builder in builders:
            _load(builder)
        _publish(name)


_registering = threading.Lock()


@functools.cache
def _load(builder: Callable[[Target], ir.Module]) -> None:
    engine().load(builder(engine().target))


@functools.cache
def _publish(name: str) -> None:
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(ctypes.c_void_p(engine().address(name))), platform="cpu")
