"""Writing and reading the hexadecimal vectors of the format contract."""

from __future__ import annotations

import numpy as np

from dgpp.formats.minifloat import BFLOAT16


def data(text: str) -> np.ndarray:
    """The bytes of "21 F7 80": uint8."""
    return np.array([int(word, 16) for word in text.split()], np.uint8)


def bf16(text: str) -> np.ndarray:
    """The bfloat16 values of "3C4A BC4A"."""
    return np.array([int(word, 16) for word in text.split()], np.uint16).view(BFLOAT16)


def f32(bits: int) -> np.float32:
    """The float32 of these bits."""
    return np.uint32(bits).view(np.float32)


def words(*values: int) -> np.ndarray:
    """int32 words of these bits."""
    return np.array(values, np.uint32).view(np.int32)


def hexes(array: np.ndarray) -> str:
    """The elements of an array as hexadecimal of their width: the inverse of `data` and `bf16`."""
    array = np.ascontiguousarray(array).reshape(-1)
    size = array.dtype.itemsize
    return " ".join(f"{int(value):0{2 * size}X}" for value in array.view(f"u{size}"))


def bf16_hex(values: np.ndarray) -> str:
    """float32 values that are exact in bfloat16, as bfloat16 hexadecimal."""
    narrow = values.astype(BFLOAT16)
    assert (narrow.astype(values.dtype) == values).all()
    return hexes(narrow)
