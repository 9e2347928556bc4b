"""The loading benchmark on a small checkpoint: what its rows mean, and that a load takes the weights' memory once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import load
from dgpp.checkpoint.load import load_weights
from dgpp.checkpoint.reader import Checkpoint
from dgpp.ops.records import check_rows

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    directory = tmp_path_factory.mktemp("load")
    return directory, load.write_checkpoint(directory, 0.046)["layers"]


def test_the_checkpoint_has_the_size_that_was_asked_for(written: tuple[Path, int]) -> None:
    directory, layers = written
    checkpoint = Checkpoint.open(directory)
    assert checkpoint.nbytes == pytest.approx(0.046e9, rel=0.02)
    weights = load_weights(load.tree_of(layers), checkpoint)
    assert weights["up"].arrays["codes"].shape == (layers, 16, 1024, 1024)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux's /proc")
def test_M3_the_peak_of_a_load_is_once_the_weights(written: tuple[Path, int]) -> None:
    directory, layers = written
    command = [sys.executable, "-m", "bench.load", "--child", str(directory), str(layers), "2"]
    figures = json.loads(subprocess.run(command, check=True, capture_output=True, cwd=ROOT).stdout)
    assert figures["bytes"] == pytest.approx(0.046e9, rel=0.02)
    assert 0.95 < figures["peak_bytes"] / figures["bytes"] < 1.1


def test_rows_compare_a_load_with_the_plain_read_of_its_turn(
    written: tuple[Path, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, layers = written
    monkeypatch.chdir(ROOT)
    rows = load.measured(directory, layers, readers=2, repeats=1)
    check_rows("load", rows)
    by_name = {row["name"]: row for row in rows}
    assert list(by_name) == ["fresh memory", "plain read, cold", "load, cold", "plain read, cached", "load, cached"]
    cold, plain = by_name["load, cold"], by_name["plain read, cold"]
    assert cold["of_plain_read_ratio"] == pytest.approx(cold["gbps"] / plain["gbps"])
    assert plain["bytes"] == sum(path.stat().st_size for path in directory.glob("*.safetensors"))


def test_a_disk_that_is_too_small_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import os

    cores = os.sched_getaffinity(0)
    try:
        assert load.main(["--gigabytes", "1e9", "--directory", str(tmp_path)]) == 2
    finally:
        os.sched_setaffinity(0, cores)
    assert "too little for" in capsys.readouterr().err
