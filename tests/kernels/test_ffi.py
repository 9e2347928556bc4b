"""The structs that handlers read, against the header that the installed jaxlib ships."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import pytest

from dgpp.kernels.native import ffi

HEADER = (Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h").read_text()
# Words that a struct within a struct takes; everything else that we step over takes one.
SIZES = {"XLA_FFI_Args": 5, "XLA_FFI_Rets": 5, "XLA_FFI_Attrs": 6, "XLA_FFI_Api_Version": 3}


def words(struct: str) -> dict[str, int]:
    """The index of the 8-byte word at which each field of a struct begins."""
    body = re.search(rf"struct {struct} \{{(.*?)\n\}}", HEADER, re.S)
    assert body is not None
    text = re.sub(r"//.*", "", body[1])
    found, at = {}, 0
    for kind, name in re.findall(r"^\s*((?:const |struct )*\w+[ *]+)(\w+);", text, re.M):
        found[name] = at
        at += SIZES.get(kind.strip(), 1)
    return found


def test_the_call_frame_is_where_handlers_look_for_it() -> None:
    frame = words("XLA_FFI_CallFrame")
    assert (frame["extension_start"], frame["stage"]) == (ffi.EXTENSION, ffi.STAGE)
    assert frame["args"] + words("XLA_FFI_Args")["args"] == ffi.ARGS
    assert frame["rets"] + words("XLA_FFI_Rets")["rets"] == ffi.RETS
    assert frame["attrs"] + words("XLA_FFI_Attrs")["attrs"] == ffi.ATTRS
    buffer = words("XLA_FFI_Buffer")
    assert (buffer["data"], buffer["dims"]) == (ffi.BUFFER_DATA, ffi.BUFFER_DIMS)
    assert words("XLA_FFI_Scalar")["value"] == ffi.SCALAR_VALUE
    assert (words("XLA_FFI_Array")["size"], words("XLA_FFI_Array")["data"]) == (ffi.ARRAY_SIZE, ffi.ARRAY_DATA)


def test_the_metadata_is_where_handlers_write_it() -> None:
    metadata = words("XLA_FFI_Metadata")
    assert metadata["api_version"] + words("XLA_FFI_Api_Version")["major_version"] == ffi.VERSION
    assert metadata["traits"] == ffi.TRAITS
    assert metadata["state_type_id"] == ffi.TYPE_ID


@pytest.mark.parametrize(
    ("name", "value"),
    [("XLA_FFI_Extension_Metadata", ffi.METADATA_TYPE), ("XLA_FFI_ExecutionStage_EXECUTE", ffi.EXECUTE)],
)
def test_the_enumerations_have_the_values_that_handlers_compare_with(name: str, value: int) -> None:
    assert re.search(rf"\b{name} = (\d+)", HEADER)[1] == str(value)
