"""Our formats against weights that libraries packed and decoded: goldens/formats, see `tests.formats.crosscheck`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgpp.checkpoint.safetensors import TAGS
from dgpp.formats import Format, Shape, format_named
from dgpp.formats.exl3 import EXL3
from dgpp.formats.gptq import GPTQ, zero_version

DIRECTORY = Path(__file__).resolve().parents[2] / "goldens" / "formats"
FILES = {path.stem: json.loads(path.read_text()) for path in sorted(DIRECTORY.glob("*.json"))}
CASES = {f"{library}: {name}": vector for library, file in FILES.items() for name, vector in file["vectors"].items()}
LIBRARIES = {"compressed_tensors", "modelopt", "transformers", "auto_round", "gptqmodel"}
COVERED = {"fp8_block16", "fp8_channel", "fp8_tensor", "nvfp4", "nvfp4_divisor", "mxfp4", "mxfp4_packed", "mxfp8"}
COVERED |= {"mxfp4_blocks", "mxfp4_deepseek", "int4_g64", "int8_g64", "gptq_int4_g32", "exl3_3_mcg"}


def array(text: Mapping[str, Any]) -> np.ndarray:
    """A tensor as the checkpoint reader would give it."""
    data = np.frombuffer(bytes.fromhex("".join(text["hex"])), np.uint8)
    return data.view(TAGS[text["dtype"]].dtype).reshape(text["shape"])


def arrays_of(vector: Mapping[str, Any]) -> tuple[Format, Shape, dict[str, np.ndarray]]:
    """(format, logical shape, arrays by field), after the checks a loader makes."""
    format = format_named(vector["format"])
    tensors = {suffix: (text["dtype"], array(text)) for suffix, text in vector["tensors"].items()}
    shape = tuple(vector["values"]["shape"])
    if isinstance(format, EXL3):  # only some rows of the values are kept
        shape = (128, 128)
    arrays = {}
    for field, packed in format.arrays(shape).items():
        if packed.suffix in tensors:
            tag, arrays[field] = tensors.pop(packed.suffix)
            assert tag in (packed.tag, *packed.also)
    assert not tensors
    format.check(arrays, shape)
    return format, shape, arrays


def rounded(values: np.ndarray, dtype: np.dtype[Any]) -> bytes:
    """The bytes of float32 values rounded once to a library's dtype, with zeros of one sign."""
    with np.errstate(over="ignore"):
        narrow = (values + np.float32(0)).astype(dtype)
    return narrow.tobytes()


def test_every_library_and_kind_of_format_is_there() -> None:
    assert FILES.keys() == LIBRARIES
    assert {vector["format"] for vector in CASES.values()} >= COVERED
    for file in FILES.values():
        assert file["made by"] == "python -m tests.formats.crosscheck --write"
        assert "torch" in file["with"]


@pytest.mark.parametrize("case", CASES)
def test_the_library_reads_the_same_values(case: str) -> None:
    vector = CASES[case]
    format, shape, arrays = arrays_of(vector)
    values = array(vector["values"])
    ours = format.decode(arrays, shape)
    if isinstance(format, EXL3):
        # The library multiplies float32 matrices in an order of its own; ours are exact but for the last rounding.
        kept = ours[: values.shape[0]]
        assert np.abs(kept - values).max() <= 2.0**-18 * np.abs(values).max()
        inner = array(vector["inner"])
        tiles = format.operand(arrays, shape)[: inner.shape[0]]
        assert rounded(tiles, inner.dtype) == rounded(inner.astype(np.float32), inner.dtype)
        return
    assert rounded(ours, values.dtype) == rounded(values.astype(np.float32), values.dtype)
    held = format_named(format.loads_as)
    assert held.decode(format.load(arrays, shape), shape).tobytes() == ours.tobytes()


@pytest.mark.parametrize("case", [name for name, vector in CASES.items() if "source" in vector])
def test_the_library_packs_the_same_tensors(case: str) -> None:
    vector = CASES[case]
    format, _, arrays = arrays_of(vector)
    ours = format.encode(array(vector["source"]))
    for field, theirs in arrays.items():
        assert ours[field].tobytes() == theirs.tobytes(), field


@pytest.mark.parametrize("case", [name for name in CASES if "version" in name and " symmetric" in name])
def test_W5_the_version_of_symmetric_zero_points_is_told_by_their_value(case: str) -> None:
    format, _, arrays = arrays_of(CASES[case])
    assert isinstance(format, GPTQ)
    assert f"version {zero_version(arrays['qzeros'], format.bits)}" in case
