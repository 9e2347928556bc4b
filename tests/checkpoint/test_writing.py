"""Writing a directory: shards that are read back, and all or nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dgpp.checkpoint.errors import CheckpointError
from dgpp.checkpoint.reader import Checkpoint
from dgpp.checkpoint.writing import copy_other_files, new_directory, write_shards


def tensors(count: int) -> list[tuple[str, tuple[str, np.ndarray]]]:
    return [(f"t{i}", ("U8", np.full(100, i, np.uint8))) for i in range(count)]


@pytest.mark.parametrize(("shard_bytes", "files"), [(10_000, 1), (250, 4), (1, 7)])
def test_shards_hold_every_tensor_once(tmp_path: Path, shard_bytes: int, files: int) -> None:
    (tmp_path / "config.json").write_text("{}")
    sizes: list[int] = []
    where = write_shards(tmp_path, tensors(7), shard_bytes, sizes.append)
    checkpoint = Checkpoint.open(tmp_path)
    assert len(checkpoint.shards) == len(sizes) == files
    assert sum(sizes) == 700
    assert {name: stored.shard for name, stored in checkpoint.tensors.items()} == where
    assert checkpoint.unindexed == ()
    for name, (_, array) in tensors(7):
        assert (checkpoint.read(name) == array).all()
    assert not list(tmp_path.glob("part-*"))


def test_a_directory_is_there_when_it_is_complete_and_not_before(tmp_path: Path) -> None:
    target = tmp_path / "new" / "model"
    with new_directory(target) as directory:
        (directory / "config.json").write_text("{}")
        assert not target.exists()
    assert (target / "config.json").read_text() == "{}"
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("error", [RuntimeError("stop"), KeyboardInterrupt()])
def test_nothing_is_left_of_a_run_that_failed(tmp_path: Path, error: BaseException) -> None:
    def write() -> None:
        with new_directory(tmp_path / "model") as directory:
            (directory / "config.json").write_text("{}")
            raise error

    with pytest.raises(type(error)):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_an_error_of_the_checkpoint(tmp_path: Path) -> None:
    with (
        pytest.raises(CheckpointError, match="model: cannot be written: No space left on device"),
        new_directory(tmp_path / "model"),
    ):
        raise OSError(28, "No space left on device")


def test_directories_with_files_are_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with new_directory(tmp_path / "model") as directory:
        (directory / "a").touch()
    with pytest.raises(CheckpointError, match="model exists already"), new_directory(tmp_path / "model"):
        pass
    assert (tmp_path / "model" / "a").exists()


def test_other_files_are_all_but_weights(tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    target.mkdir()
    for name in ("config.json", "LICENSE", "tokenizer.json", "model.safetensors", "model.safetensors.index.json"):
        (source / name).touch()
    copy_other_files(source, target, but=["config.json"])
    assert sorted(path.name for path in target.iterdir()) == ["LICENSE", "tokenizer.json"]
