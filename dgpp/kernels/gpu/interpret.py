"""Triton's interpreter over NumPy arrays: the few methods of a tensor that it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from dgpp.kernels.gpu.launch import NAMES, Out


class _Memory:
    """The storage under a tensor: all of one array's bytes."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def cpu(self) -> _Memory:
        return self

    def copy_(self, other: _Memory) -> None:
        """Nothing to do: the interpreter worked on this very memory."""


class _Tensor:
    """A contiguous NumPy array as the interpreter wants to see it."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.dtype = NAMES[array.dtype.name]

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def element_size(self) -> int:
        return self.array.itemsize

    def untyped_storage(self) -> _Memory:
        return _Memory(self.array)

    def storage_offset(self) -> int:
        return 0

    def size(self) -> tuple[int, ...]:
        return self.array.shape

    def stride(self) -> tuple[int, ...]:
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def new_empty(self, *_: Any, **__: Any) -> _Tensor:
        return _Tensor(self.array)

    def set_(self, storage: _Memory, *_: Any) -> None:
        self.array = storage.array


def _with_truth(method: Any, place: int) -> Any:
    """A load or store of the interpreter that takes a mask of any numbers: Triton 3.9 makes bytes of some masks and
    then refuses them."""

    def call(self: Any, *arguments: Any) -> Any:
        before, mask, after = arguments[:place], arguments[place], arguments[place + 1 :]
        return method(self, *before, TensorHandle(mask.data.astype(bool), mask.dtype), *after)

    return call


for _name, _place in (("create_masked_load", 1), ("create_masked_store", 2)):
    setattr(InterpreterBuilder, _name, _with_truth(getattr(InterpreterBuilder, _name), _place))


def interpret(
    kernel: Any,
    arguments: Sequence[np.ndarray],
    outs: Sequence[Out],
    grid: tuple[int, ...],
    constants: Mapping[str, Any],
) -> tuple[np.ndarray, ...]:
    """The outputs of a kernel, as `dgpp.kernels.gpu.launch.launch` says; what is not written stays NaN or 0x7F."""
    inputs = [np.ascontiguousarray(value).reshape(value.shape) for value in arguments]
    results = []
    for out in outs:
        if out.alias is None:
            results.append(np.frombuffer(bytearray(b"\x7f\xff" * _words(out)), np.uint16).view(out.dtype))
            results[-1] = results[-1][: int(np.prod(out.shape))].reshape(out.shape)
        else:
            results.append(inputs[out.alias].copy())
    kernel[grid](*(_Tensor(array) for array in (*inputs, *results)), **constants)
    return tuple(results)


def _words(out: Out) -> int:
    size = int(np.prod(out.shape)) * np.dtype(out.dtype).itemsize
    return -(-size // 4) * 2
