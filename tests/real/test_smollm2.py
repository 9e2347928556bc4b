"""The snapshot of SmolLM2: where it comes from, and that it is a model that answers."""

from __future__ import annotations

import subprocess
import zipfile
from pathlib import Path
from typing import Any, NoReturn

import pytest

import dgpp
from tests.real import smollm2


def no_network(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("the network was used")


def test_a_wheel_with_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGPP_TEST_CACHE", str(tmp_path))
    with zipfile.ZipFile(tmp_path / smollm2.WHEEL, "w") as archive:
        archive.writestr(smollm2.MEMBER, b"GGUF")
    with pytest.raises(RuntimeError, match="SHA-256"):
        smollm2.snapshot()
    assert [path.name for path in tmp_path.iterdir()] == [smollm2.WHEEL]


def test_a_failed_download_says_what_pip_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGPP_TEST_CACHE", str(tmp_path))
    failed = subprocess.CompletedProcess([], 1, "", "no route to host")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(RuntimeError, match="no route to host"):
        smollm2.snapshot()


@pytest.mark.real
def test_a_second_snapshot_needs_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = smollm2.snapshot()
    monkeypatch.setattr(subprocess, "run", no_network)
    assert smollm2.snapshot() == first
    made = smollm2.snapshot(tmp_path / "again")
    assert (made / "model.safetensors").read_bytes() == (first / "model.safetensors").read_bytes()
    assert (made / "tokenizer.json").read_bytes() == (first / "tokenizer.json").read_bytes()


@pytest.mark.real
def test_it_answers_in_english() -> None:
    model = dgpp.load(str(smollm2.snapshot()), slots=1, pool_tokens=256)
    answer = model.generate([{"role": "user", "content": "What is the capital of France?"}], max_tokens=32)
    assert answer.text == "The capital of France is Paris."
    assert answer.finish_reason == "stop"
