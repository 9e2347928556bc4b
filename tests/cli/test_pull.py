"""`dgpp pull`: what it prints, and that an incomplete download is noticed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dgpp.checkpoint import hub
from dgpp.checkpoint.embedded import embedded_path
from dgpp.checkpoint.reader import Checkpoint
from dgpp.cli.main import main


@pytest.fixture
def download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that every download "arrives" in."""
    directory = tmp_path / "snapshot"
    shutil.copytree(embedded_path(), directory)

    def pull(model: str, revision: str | None, progress: bool) -> Path:
        assert (model, revision, progress) == ("org/name", "v1", False)
        return directory

    monkeypatch.setattr(hub, "pull", pull)
    return directory


def run() -> int:
    with pytest.raises(SystemExit) as caught:
        main(["pull", "org/name", "--revision", "v1", "--quiet"])
    return int(caught.value.code or 0)


def test_it_prints_the_directory_and_what_is_in_it(download: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert capsys.readouterr().out == f"{download}: 38 tensors, {Checkpoint.open(download).nbytes:,} bytes\n"


def test_an_incomplete_download_is_an_error(download: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (download / "model.safetensors").rename(download / "model-00001-of-00002.safetensors")
    assert run() == 2
    assert "model-00002-of-00002.safetensors of 2 shards missing" in capsys.readouterr().err
