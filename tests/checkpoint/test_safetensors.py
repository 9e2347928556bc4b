"""The safetensors reader and writer: every way a file can be wrong has its own message."""

from __future__ import annotations

import json
import os
import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.safetensors import MAX_HEADER, TAGS, read_header, write


def file_of(path: Path, header: Any, data: bytes = b"") -> Path:
    """A file with the given header (text, or an object to dump) and data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def entry(start: int, stop: int, dtype: str = "U8", shape: list[int] | None = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [stop - start] if shape is None else shape, "data_offsets": [start, stop]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.safetensors"


def refuses(path: Path, *parts: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_header(path)
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_reads_tensors_metadata_and_the_start_of_the_data(path: Path) -> None:
    header = {"__metadata__": {"format": "pt"}, "b": entry(2, 6, "F32", [1]), "a": entry(0, 2)}
    file_of(path, json.dumps(header).encode() + b"   ", b"abcdef")
    found = read_header(path)
    assert list(found.tensors) == ["b", "a"]
    assert found.metadata == {"format": "pt"}
    assert path.read_bytes()[found.data_start :] == b"abcdef"
    info = found.tensors["b"]
    assert (info.tag, info.shape, info.start, info.stop, info.nbytes) == ("F32", (1,), 2, 6, 4)


def test_an_empty_header_and_empty_tensors_and_scalars_are_valid(path: Path) -> None:
    assert read_header(file_of(path, {})).tensors == {}
    file_of(path, {"none": entry(0, 0, "BF16", [3, 0]), "one": entry(0, 4, "F32", [])}, b"1234")
    assert read_header(path).tensors["one"].shape == ()


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_file_shorter_than_its_length_field(path: Path, size: int) -> None:
    path.write_bytes(b"x" * size)
    refuses(path, f"{size} bytes", "download it again")


@pytest.mark.parametrize("length", [3, 5 * 2**30, 2**64 - 1])
def test_a_header_longer_than_the_file_is_not_allocated(path: Path, length: int) -> None:
    path.write_bytes(struct.pack("<Q", length) + b"{}")
    tracemalloc.start()
    started = time.perf_counter()
    refuses(path, str(length), "longer than the file")
    assert time.perf_counter() - started < 1
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_a_header_over_the_formats_limit_is_not_read(path: Path) -> None:
    path.write_bytes(struct.pack("<Q", 5 * 2**30))
    os.truncate(path, 6 * 2**30)  # sparse: takes no space
    tracemalloc.start()
    refuses(path, str(MAX_HEADER))
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@pytest.mark.parametrize("text", [b"", b"{", b"\xff{}", b"nonsense", b"[" * 100_000, b'{"\\ud800": 1}', b"9" * 9000])
def test_a_header_that_is_no_json(path: Path, text: bytes) -> None:
    refuses(file_of(path, text), "not JSON")


@pytest.mark.parametrize("header", [[], "text", 3, None])
def test_a_header_that_is_no_object(path: Path, header: Any) -> None:
    refuses(file_of(path, header), "not an object")


def test_duplicate_names(path: Path) -> None:
    one = json.dumps(entry(0, 1))
    refuses(file_of(path, f'{{"w": {one}, "w": {one}}}'.encode(), b"x"), "'w'", "twice")


@pytest.mark.parametrize("metadata", [[], "text", {"format": 1}, {"a": {"b": "c"}}])
def test_metadata_maps_strings_to_strings(path: Path, metadata: Any) -> None:
    refuses(file_of(path, {"__metadata__": metadata}), "__metadata__")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (3, "must have dtype"),
        ({"dtype": "U8", "shape": [1]}, "must have dtype"),
        ({**entry(0, 1), "more": 1}, "must have dtype"),
        (entry(0, 1, "F7"), "unknown dtype 'F7'"),
        ({**entry(0, 1), "dtype": None}, "unknown dtype None"),
        ({**entry(0, 1), "dtype": ["U8"]}, "unknown dtype"),
        (entry(0, 1, shape=[-1]), "shape [-1]"),
        ({**entry(0, 1), "shape": [1.0]}, "shape [1.0]"),
        ({**entry(0, 1), "shape": [True]}, "shape [True]"),
        ({**entry(0, 1), "shape": None}, "shape None"),
        ({**entry(0, 1), "data_offsets": [0]}, "data_offsets [0]"),
        ({**entry(0, 1), "data_offsets": [1, 0]}, "data_offsets [1, 0]"),
        ({**entry(0, 1), "data_offsets": [-1, 0]}, "data_offsets [-1, 0]"),
        (entry(0, 1, shape=[2]), "2 bytes, but data_offsets [0, 1] span 1"),
        (entry(0, 1, "BF16", [1]), "2 bytes, but"),
        (entry(0, 1, "U8", [2**62, 4]), "bytes, but"),
        (entry(0, 1, "F4", [1]), "whole bytes"),
        (entry(0, 1, "F4", []), "whole bytes"),
    ],
)
def test_a_wrong_entry_names_the_tensor(path: Path, wrong: Any, words: str) -> None:
    refuses(file_of(path, {"model.w": wrong}, b"x"), "'model.w'", words)


def test_truncated_shard(path: Path) -> None:
    file_of(path, {"first": entry(0, 8), "last": entry(8, 24)}, b"x" * 23)
    refuses(path, "'last'", "24", "23", "truncated")


def test_overlapping_tensors(path: Path) -> None:
    file_of(path, {"a": entry(0, 8), "b": entry(7, 12)}, b"x" * 12)
    refuses(path, "'a' and 'b' overlap")


def test_holes_and_tails_are_refused_as_by_the_published_reader(path: Path) -> None:
    refuses(file_of(path, {"a": entry(0, 4), "b": entry(5, 8)}, b"x" * 8), "1 bytes before tensor 'b'")
    refuses(file_of(path, {"a": entry(0, 4)}, b"x" * 8), "4 bytes after the last tensor")


def test_a_missing_file(tmp_path: Path) -> None:
    refuses(tmp_path / "absent.safetensors", "cannot be read")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_is_read_or_refused_but_never_crashes(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "damaged.safetensors"
    write(path, {"x": ("BF16", np.zeros((2, 3), ml_dtypes.bfloat16)), "y": ("U8", np.arange(5, dtype=np.uint8))})
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    try:
        header = read_header(path)
    except CheckpointError:
        return
    assert all(info.stop + header.data_start <= len(content) for info in header.tensors.values())


@pytest.mark.parametrize("tag", TAGS)
def test_every_tag_is_written_and_read_back(path: Path, tag: str) -> None:
    dtype, bits = TAGS[tag].dtype, TAGS[tag].bits
    raw = np.arange(24 * dtype.itemsize, dtype=np.uint8)
    array = (raw % 2 if tag == "BOOL" else raw).view(dtype).reshape(2, 12)
    write(path, {"w": (tag, array)}, {"format": "pt"})
    info = read_header(path).tensors["w"]
    assert info.tag == tag
    assert info.shape == (2, 12 if bits >= 8 else 12 * 8 // bits)
    assert info.stored_shape == (2, 12)
    assert path.read_bytes()[read_header(path).data_start :] == array.tobytes()


def test_the_writer_orders_wide_elements_first_then_names_and_aligns_the_data(path: Path) -> None:
    small, wide = np.zeros(3, np.uint8), np.zeros(2, np.float32)
    write(path, {"b": ("U8", small), "a": ("U8", small), "z": ("F32", wide)})
    header = read_header(path)
    assert list(header.tensors) == ["z", "a", "b"]
    assert header.data_start % 8 == 0


def test_the_writer_refuses_another_dtype_and_leaves_the_old_file(path: Path) -> None:
    write(path, {"w": ("F32", np.zeros(2, np.float32))})
    before = path.read_bytes()
    with pytest.raises(ValueError, match="BF16 is written from bfloat16, not float32"):
        write(path, {"w": ("BF16", np.zeros(2, np.float32))})
    with pytest.raises(ValueError, match="F6_E2M3"):
        write(path, {"w": ("F6_E2M3", np.zeros((2, 4), np.uint8))})
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
