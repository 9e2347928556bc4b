"""Opening a checkpoint: the union of all headers, checked against the index; and reading tensors from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.reader import INDEX, Checkpoint
from dgpp.checkpoint.safetensors import read_header, write

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def tensor(*shape: int, start: int = 0) -> tuple[str, np.ndarray]:
    return "BF16", (np.arange(np.prod(shape, dtype=int)) + start).reshape(shape).astype(ml_dtypes.bfloat16)


def index(directory: Path, weight_map: Any) -> None:
    (directory / INDEX).write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map}))


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """Two shards of a release and their index."""
    (tmp_path / "config.json").write_text('{"architectures": ["X"]}')
    write(tmp_path / FIRST, {"a": tensor(2, 3), "b": tensor(4)})
    write(tmp_path / SECOND, {"c": tensor(5, start=100)})
    index(tmp_path, {"a": FIRST, "b": FIRST, "c": SECOND})
    return tmp_path


@pytest.fixture
def single(tmp_path: Path) -> Path:
    """A single file without an index."""
    (tmp_path / "config.json").write_text("{}")
    write(tmp_path / "model.safetensors", {"a": tensor(2, 3), "odd": ("U8", np.arange(3, dtype=np.uint8))})
    return tmp_path


def test_sharded_with_an_index(sharded: Path) -> None:
    found = Checkpoint.open(sharded)
    assert found.shards == (FIRST, SECOND)
    assert set(found.tensors) == {"a", "b", "c"}
    assert found.tensors["c"].shard == SECOND
    assert found.unindexed == ()
    assert found.nbytes == 2 * (6 + 4 + 5)
    assert found.config == {"architectures": ["X"]}
    assert found.generation_config == {}


def test_single_file_and_the_other_files(single: Path) -> None:
    (single / "generation_config.json").write_text('{"eos_token_id": 2}')
    (single / "tokenizer.json").write_text("{}")
    (single / "chat_template.jinja").write_text("")
    found = Checkpoint.open(single)
    assert set(found.tensors) == {"a", "odd"}
    assert found.generation_config == {"eos_token_id": 2}
    assert set(found.tokenizer_files) == {"tokenizer.json", "chat_template.jinja"}


def test_W7_a_tensor_the_index_forgot_is_kept_and_reported(sharded: Path) -> None:
    write(sharded / SECOND, {"c": tensor(5), "mtp.0.w": tensor(7)})
    write(sharded / "mtp.safetensors", {"mtp.1.w": tensor(8)})
    found = Checkpoint.open(sharded)
    assert found.unindexed == ("mtp.0.w", "mtp.1.w")
    assert found.read("mtp.0.w").shape == (7,)
    assert found.read("mtp.1.w").shape == (8,)


def test_a_tensor_the_index_lists_but_its_shard_does_not_hold(sharded: Path) -> None:
    index(sharded, {"a": FIRST, "b": FIRST, "c": SECOND, "lost": SECOND, "also": SECOND})
    with pytest.raises(CheckpointError, match=rf"'lost' \(and 1 more\) is in {SECOND}, but no shard holds it"):
        Checkpoint.open(sharded)


def test_a_tensor_that_is_in_another_shard_than_listed(sharded: Path) -> None:
    index(sharded, {"a": FIRST, "b": SECOND, "c": SECOND})
    with pytest.raises(CheckpointError, match=rf"'b' is in {SECOND}, but it is in {FIRST}"):
        Checkpoint.open(sharded)


def test_a_tensor_in_two_shards(sharded: Path) -> None:
    write(sharded / SECOND, {"c": tensor(5), "a": tensor(2, 3)})
    with pytest.raises(CheckpointError, match=rf"'a' is in both {FIRST} and {SECOND}"):
        Checkpoint.open(sharded)


@pytest.mark.parametrize("indexed", [True, False])
def test_missing_shards_are_named(sharded: Path, indexed: bool) -> None:
    (sharded / SECOND).unlink()
    if not indexed:
        (sharded / INDEX).unlink()
    with pytest.raises(CheckpointError, match=f"{SECOND} of 2 shards missing"):
        Checkpoint.open(sharded)


def test_many_missing_shards_are_counted(sharded: Path) -> None:
    (sharded / INDEX).unlink()
    (sharded / FIRST).unlink()
    (sharded / SECOND).rename(sharded / "model-00001-of-00009.safetensors")
    with pytest.raises(CheckpointError, match=r"model-00004-of-00009.safetensors and 5 more of 9 shards missing"):
        Checkpoint.open(sharded)


def test_a_dangling_link_is_a_missing_shard(sharded: Path) -> None:
    (sharded / SECOND).unlink()
    (sharded / SECOND).symlink_to(sharded / "blobs" / "gone")
    with pytest.raises(CheckpointError, match=f"{SECOND} of 2 shards missing"):
        Checkpoint.open(sharded)


def test_truncated_shard_names_file_and_tensor(sharded: Path) -> None:
    (sharded / SECOND).write_bytes((sharded / SECOND).read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=rf"{SECOND}: tensor 'c' .*truncated"):
        Checkpoint.open(sharded)


@pytest.mark.parametrize("weight_map", [None, [], {}, {"a": 3}, {"a": "../x.safetensors"}, {"a": "/x.safetensors"}])
def test_a_wrong_index(sharded: Path, weight_map: Any) -> None:
    index(sharded, weight_map)
    with pytest.raises(CheckpointError, match=rf"{INDEX}: weight_map"):
        Checkpoint.open(sharded)


def test_a_shard_outside_the_index_name_is_no_path_out(sharded: Path) -> None:
    index(sharded, {"a": "pytorch_model.bin"})
    with pytest.raises(CheckpointError, match="not a safetensors file of the directory"):
        Checkpoint.open(sharded)


def test_directories_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a directory"):
        Checkpoint.open(tmp_path / "absent")
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        Checkpoint.open(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"has no \*\.safetensors file$"):
        Checkpoint.open(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(CheckpointError, match=r"it has pytorch_model\.bin, which is another format"):
        Checkpoint.open(tmp_path)


def test_read_is_a_read_only_view_of_the_file(single: Path) -> None:
    found = Checkpoint.open(single)
    values = found.read("a")
    assert values.dtype == ml_dtypes.bfloat16
    assert values.astype(np.float32).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not values.flags.writeable
    assert not values.flags.owndata
    with (single / "model.safetensors").open("r+b") as file:  # the view shows the file, so it is no copy
        file.seek(read_header(single / "model.safetensors").data_start)
        file.write(np.array([9], ml_dtypes.bfloat16).tobytes())
    assert values[0, 0] == 9


@pytest.mark.parametrize("tag", ["F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "U8"])
def test_narrow_elements_come_as_bytes(single: Path, tag: str) -> None:
    raw = np.arange(24, dtype=np.uint8).reshape(2, 12)
    write(single / "model.safetensors", {"w": (tag, raw)})
    values = Checkpoint.open(single).read("w")
    assert values.dtype == np.uint8
    assert (values == raw).all()


def test_tensors_at_odd_offsets_and_empty_ones(single: Path) -> None:
    text = json.dumps(
        {
            "odd": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
            "w": {"dtype": "F32", "shape": [], "data_offsets": [1, 5]},
            "none": {"dtype": "BF16", "shape": [0, 4], "data_offsets": [5, 5]},
        }
    ).encode()
    data = b"\x01" + np.float32(2.5).tobytes()
    (single / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    found = Checkpoint.open(single)
    assert found.read("w").item() == 2.5
    assert found.read("none").shape == (0, 4)
    scalar = np.zeros((), np.float32)
    found.read_into("w", scalar)
    assert scalar == 2.5
    found.read_into("none", np.zeros((0, 4), ml_dtypes.bfloat16))


def test_read_into_equals_read(single: Path) -> None:
    found = Checkpoint.open(single)
    stack = np.zeros((2, 2, 3), ml_dtypes.bfloat16)
    found.read_into("a", stack[1])
    assert (stack[1] == found.read("a")).all()
    assert not stack[0].any()


def test_read_into_refuses_an_array_that_does_not_fit(single: Path) -> None:
    found = Checkpoint.open(single)
    for out in (
        np.zeros((2, 3), np.float16),
        np.zeros((3, 2), ml_dtypes.bfloat16),
        np.zeros((3, 2), ml_dtypes.bfloat16).T,
    ):
        with pytest.raises(ValueError, match="cannot read it into"):
            found.read_into("a", out)


def test_read_into_a_file_that_shrank(single: Path) -> None:
    found = Checkpoint.open(single)
    path = single / "model.safetensors"
    path.write_bytes(path.read_bytes()[: found.tensors["a"].offset + 3])
    with pytest.raises(CheckpointError, match="ends inside tensor 'a'"):
        found.read_into("a", np.zeros((2, 3), ml_dtypes.bfloat16))
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot be read"):
        found.read_into("a", np.zeros((2, 3), ml_dtypes.bfloat16))


def test_unknown_tensor(single: Path) -> None:
    with pytest.raises(CheckpointError, match="no shard holds tensor 'x'"):
        Checkpoint.open(single).read("x")
