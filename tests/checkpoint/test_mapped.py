from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.load import load_weights
from dgpp.checkpoint.mapped import MappedTable
from dgpp.checkpoint.spec import TensorSpec
from dgpp.formats import format_named
from dgpp.formats.minifloat import BFLOAT16
from tests.checkpoint.test_load_formats import checkpoint_of

SPEC = TensorSpec("t.shard_{part}", (12, 32), ("ngrams", "embed"), linear=False, parts=4, whole="t")


@pytest.mark.parametrize("tag", ["bf16", "f32", "fp8_tensor", "mxfp8"])
@pytest.mark.parametrize("parts", [4, 0])
def test_rows_are_those_of_the_loaded_table(tmp_path: Path, tag: str, parts: int) -> None:
    spec = replace(SPEC, format=tag)
    spec = spec if parts else replace(spec, source="t", parts=0, whole="")
    checkpoint = checkpoint_of(tmp_path, {"table": spec})
    weight = load_weights({"table": spec}, checkpoint)["table"]
    expected = format_named(tag).decode(weight.arrays, (12, 32)).astype(BFLOAT16)
    table = MappedTable(checkpoint, replace(spec, format="bf16"))
    assert table.spec.format == tag
    ids = np.array([[11, 0, 3], [2, 3, 0]], np.int64)
    rows = table.rows(ids)
    assert rows.dtype == BFLOAT16
    assert (rows == expected[ids]).all()
    assert table.rows(np.empty((0,), np.int64)).shape == (0, 32)


def test_a_row_that_is_not_there_is_refused(tmp_path: Path) -> None:
    table = MappedTable(checkpoint_of(tmp_path, {"table": SPEC}), SPEC)
    for wrong in (-1, 12):
        with pytest.raises(ValueError, match=f"t: there is no row {wrong}; it has 12 rows"):
            table.rows(np.array([0, wrong]))


def test_what_cannot_be_read_by_row_is_refused(tmp_path: Path) -> None:
    blocks = TensorSpec("t", (256, 256), ("ngrams", "embed"), "fp8_block128", linear=False)
    with pytest.raises(CheckpointError, match="t is stored as fp8_block128, whose rows cannot be read one by one"):
        MappedTable(checkpoint_of(tmp_path / "blocks", {"table": blocks}), blocks)
    layers = TensorSpec("l.{layer}", (12, 32), ("ngrams", "embed"), numbers=(0, 1))
    with pytest.raises(ValueError, match=r"l\.\{layer\}: a mapped table is one matrix"):
        MappedTable(checkpoint_of(tmp_path / "layers", {"table": layers}), layers)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(tmp_path, {"table": SPEC}, {"t.shard_2.weight": None})
    with pytest.raises(CheckpointError, match=r"tensor 't\.shard_2\.weight' of module table is missing"):
        MappedTable(checkpoint, SPEC)
