"""The safetensors file: 8 bytes of header length, a JSON header, and the tensors' bytes.

The length is a little-endian unsigned 64-bit integer. The header maps each tensor's name to its `dtype` tag, `shape`
and `data_offsets` [start, stop) counted from the end of the header; the optional entry `__metadata__` maps strings
to strings. Tensors lie row-major, in any order, without overlap and, as in the published format, without holes: a
hole or a tail that no tensor owns is refused, since it means that a file was cut, joined or edited by accident.
Source: github.com/huggingface/safetensors, README "Format".
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from dgpp.checkpoint.errors import CheckpointError

MAX_HEADER = 100_000_000
"""The published format's limit on the header's bytes."""


@dataclass(frozen=True)
class Tag:
    """A dtype tag of the header: bits of one element, and the NumPy dtype its bytes are read as.

    Elements NumPy cannot compute with in one unit (FP8, FP6, FP4 and scale exponents) are read as uint8.
    """

    bits: int
    dtype: np.dtype[Any]


_BYTES = np.dtype(np.uint8)
TAGS: dict[str, Tag] = {
    "BOOL": Tag(8, np.dtype(np.bool_)),
    "U8": Tag(8, np.dtype(np.uint8)),
    "I8": Tag(8, np.dtype(np.int8)),
    "U16": Tag(16, np.dtype("<u2")),
    "I16": Tag(16, np.dtype("<i2")),
    "U32": Tag(32, np.dtype("<u4")),
    "I32": Tag(32, np.dtype("<i4")),
    "U64": Tag(64, np.dtype("<u8")),
    "I64": Tag(64, np.dtype("<i8")),
    "BF16": Tag(16, np.dtype(ml_dtypes.bfloat16)),
    "F16": Tag(16, np.dtype("<f2")),
    "F32": Tag(32, np.dtype("<f4")),
    "F64": Tag(64, np.dtype("<f8")),
    "C64": Tag(64, np.dtype("<c8")),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0"), Tag(8, _BYTES)),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), Tag(6, _BYTES)),
    "F4": Tag(4, _BYTES),
}


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a header: its tag, its shape in elements, and its bytes [start, stop) of the data."""

    tag: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return self.stop - self.start

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype the tensor is read as."""
        return TAGS[self.tag].dtype

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape of the array that is read: `shape`, with the last axis in bytes where elements are narrower."""
        bits = TAGS[self.tag].bits
        return self.shape if bits >= 8 else (*self.shape[:-1], self.shape[-1] * bits // 8)


@dataclass(frozen=True)
class Header:
    """A file's tensors by name in the header's order, where their data starts in the file, and the metadata."""

    tensors: dict[str, TensorInfo]
    data_start: int
    metadata: dict[str, str]


def read_header(path: Path) -> Header:
    """The checked header of a safetensors file. Reads nothing but the header.

    Raises CheckpointError naming the file, the tensor and what is wrong with it; a header longer than the file or
    the format's limit is refused before it is read.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            text = _header_text(path, file, size)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    data_start = 8 + len(text)
    entries = _header_object(path, text)
    metadata = _metadata(path, entries.pop("__metadata__", {}))
    tensors = {name: _tensor(path, name, entry) for name, entry in entries.items()}
    _check_layout(path, tensors, size - data_start)
    return Header(tensors, data_start, metadata)


def _header_text(path: Path, file: BinaryIO, size: int) -> bytes:
    if size < 8:
        raise CheckpointError(f"{path}: {size} bytes is too short for a safetensors file; download it again")
    (length,) = struct.unpack("<Q", file.read(8))
    if length > size - 8:
        raise CheckpointError(
            f"{path}: the header should be {length} bytes, longer than the file ({size} bytes): "
            f"truncated, or no safetensors file"
        )
    if length > MAX_HEADER:
        raise CheckpointError(f"{path}: a header of {length} bytes is over the format's limit of {MAX_HEADER}")
    return file.read(length)


def _header_object(path: Path, text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise CheckpointError(f"{path}: {key!r} occurs twice in the header")
            found[key] = value
        return found

    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
        if isinstance(header, dict):
            "".join(header).encode("utf-8")  # an escaped half of a surrogate pair is no name
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: the header is not JSON ({error}): damaged, or no safetensors file") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{path}: the header is a JSON {type(header).__name__}, not an object")
    return header


def _metadata(path: Path, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(entry, str) for entry in value.values()):
        raise CheckpointError(f"{path}: __metadata__ must map strings to strings")
    return value


def _tensor(path: Path, name: str, entry: Any) -> TensorInfo:
    def wrong(what: str) -> CheckpointError:
        return CheckpointError(f"{path}: tensor {name!r}: {what}")

    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise wrong("its header entry must have dtype, shape and data_offsets")
    tag, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(tag, str) or tag not in TAGS:
        raise wrong(f"unknown dtype {tag!r}; known: {', '.join(TAGS)}")
    if not _is_counts(shape):
        raise wrong(f"shape {shape!r} is not a list of non-negative integers")
    if not _is_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise wrong(f"data_offsets {offsets!r} is not an ascending pair of non-negative integers")
    bits = TAGS[tag].bits
    if bits < 8 and (not shape or shape[-1] * bits % 8):
        raise wrong(f"a row of {tag} of shape {shape} does not fill whole bytes")
    nbytes = math.prod(shape) * bits // 8
    if offsets[1] - offsets[0] != nbytes:
        raise wrong(
            f"{tag} of shape {shape} is {nbytes} bytes, but data_offsets {offsets} span {offsets[1] - offsets[0]}"
        )
    return TensorInfo(tag, tuple(shape), *offsets)


def _is_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _check_layout(path: Path, tensors: Mapping[str, TensorInfo], data_size: int) -> None:
    """Tensors must cover the data one after another, to its end."""
    end, previous = 0, ""
    for name, info in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].stop)):
        if info.stop > data_size:
            raise CheckpointError(
                f"{path}: tensor {name!r} ends at byte {info.stop} of the data, but the file holds {data_size}: "
                f"truncated; download it again"
            )
        if info.start < end:
            raise CheckpointError(f"{path}: tensors {previous!r} and {name!r} overlap")
        if info.start > end:
            raise CheckpointError(f"{path}: {info.start - end} bytes before tensor {name!r} belong to no tensor")
        end, previous = info.stop, name
    if end != data_size:
        raise CheckpointError(f"{path}: {data_size - end} bytes after the last tensor belong to no tensor")


def write(path: Path, tensors: Mapping[str, tuple[str, np.ndarray]], metadata: Mapping[str, str] | None = None) -> None:
    """Writes a safetensors file from (tag, array) by name; arrays as `read_header`'s tags say they are read.

    Wider elements come first, then names ascending, as the published writer orders them, so equal tensors make equal
    files. The file appears whole under its name or not at all. Raises ValueError when an array is not of its tag.
    """
    order = sorted(tensors, key=lambda name: (-TAGS[tensors[name][0]].bits, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    position = 0
    for name in order:
        tag, array = tensors[name]
        bits, dtype = TAGS[tag].bits, TAGS[tag].dtype
        if array.dtype != dtype:
            raise ValueError(f"{name}: {tag} is written from {dtype}, not {array.dtype}")
        shape = list(array.shape)
        if bits < 8:
            if not shape or shape[-1] * 8 % bits:
                raise ValueError(f"{name}: rows of {shape} bytes are no whole number of {tag} elements")
            shape[-1] = shape[-1] * 8 // bits
        header[name] = {"dtype": tag, "shape": shape, "data_offsets": [position, position + array.nbytes]}
        position += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name in order:
                file.write(tensors[name][1].tobytes())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
