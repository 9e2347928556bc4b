"""`dgpp fixture`: the list, and a checkpoint that `dgpp show` reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgpp.checkpoint.reader import Checkpoint
from dgpp.cli.main import main
from dgpp.models import FAMILIES


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["fixture", *arguments])
    return int(caught.value.code or 0)


def test_without_arguments_it_lists_families_and_releases(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(FAMILIES)
    assert lines[0].endswith(": " + ", ".join(FAMILIES["llama"].releases))


def test_it_writes_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "deep" / "new"
    assert run("llama", "tiny", str(target), "--seed", "5") == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert len(Checkpoint.open(target).shards) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mamba"], "no family 'mamba'; there are llama"),
        (["llama"], "RELEASE DIR, with a release of tiny"),
        (["llama", "tiny"], "RELEASE DIR"),
        (["llama", "huge", "new"], "no release 'huge'"),
    ],
)
def test_wrong_arguments(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*arguments) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
