"""Digests of a model's files, and what tells two downloads apart."""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
from pathlib import Path

import pytest

from dgpp.checkpoint import digests
from dgpp.checkpoint.digests import (
    BackgroundDigests,
    FileDigest,
    differing,
    digest_files,
    model_digest,
    model_files,
    read_sums,
)
from dgpp.checkpoint.errors import CheckpointError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(bytes(range(256)) * 9)
    (directory / "empty.txt").touch()
    return directory


@pytest.mark.parametrize("chunk", [1000, 1 << 20])
def test_W14_the_digests_are_sha256(model: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(digests, "CHUNK", chunk)
    seen: list[tuple[int, int]] = []
    found = digest_files(model_files(model), lambda done, total: seen.append((done, total)))
    assert [digest.name for digest in found] == ["config.json", "empty.txt", "model.safetensors"]
    for digest in found:
        data = (model / digest.name).read_bytes()
        assert digest == FileDigest(digest.name, len(data), hashlib.sha256(data).hexdigest())
        assert not digest.damaged
    assert seen[-1] == (2306, 2306)
    lines = subprocess.run(["sha256sum", *(d.name for d in found)], cwd=model, capture_output=True).stdout
    assert model_digest(found[::-1]) == hashlib.sha256(lines).hexdigest()


def test_W14_equal_names_with_different_bytes_have_different_digests(model: Path, tmp_path: Path) -> None:
    before = digest_files(model_files(model))
    sums = tmp_path / "sums"
    sums.write_text("".join(f"{digest.sha256}  {digest.name}\n" for digest in before))
    assert differing(before, read_sums(sums)) == []
    data = bytearray((model / "model.safetensors").read_bytes())
    data[1234] ^= 1
    (model / "model.safetensors").write_bytes(data)
    after = digest_files(model_files(model))
    assert model_digest(after) != model_digest(before)
    assert differing(after, read_sums(sums)) == ["model.safetensors"]
    assert differing(after[:1], read_sums(sums)) == ["empty.txt", "model.safetensors"]


def test_W14_a_link_into_the_hubs_cache_promises_its_digest(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    good, bad = b"as published", b"as something else"
    name = hashlib.sha256(good).hexdigest()
    (blobs / name).write_bytes(good)
    (snapshot / "model.safetensors").symlink_to(blobs / name)
    (blobs / "0123abcd").write_text("{}")
    (snapshot / "config.json").symlink_to(blobs / "0123abcd")  # git's digest, which is no SHA-256 of the file
    assert [d.damaged for d in digest_files(model_files(snapshot))] == [False, False]
    assert digest_files(model_files(snapshot))[1].published == name
    (blobs / name).write_bytes(bad)
    assert [d.damaged for d in digest_files(model_files(snapshot))] == [False, True]


def test_files_that_cannot_be_read_are_named(model: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="sums: cannot be read: No such file"):
        read_sums(tmp_path / "sums")
    (tmp_path / "sums").write_text("no digest\n")
    with pytest.raises(CheckpointError, match="sums: line 1 is not a SHA-256"):
        read_sums(tmp_path / "sums")


def test_W14_digests_are_taken_beside_the_work_and_logged(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="dgpp.checkpoint.digests"):
        background = BackgroundDigests(model)
        background.wait(60)
    report, expected = background.report(), digest_files(model_files(model))
    assert report["state"] == "ready"
    assert report["files"] == {digest.name: digest.sha256 for digest in expected}
    assert report["model"] == model_digest(expected)
    assert report["damaged"] == []
    for digest in expected:
        assert f"{digest.sha256}  {digest.name}" in caplog.text
    assert f"model digest {report['model']}" in caplog.text


def test_W14_a_damaged_file_is_listed_and_an_unreadable_one_ends_the_report(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    name = hashlib.sha256(b"as published").hexdigest()
    (blobs / name).write_bytes(b"as something else")
    (snapshot / "model.safetensors").symlink_to(blobs / name)
    background = BackgroundDigests(snapshot)
    background.wait(60)
    assert background.report()["damaged"] == ["model.safetensors"]
    missing = BackgroundDigests(tmp_path / "nothing")
    missing.wait(60)
    assert missing.report()["state"] == "failed"
    assert "nothing" in missing.report()["error"]


def test_W14_digests_that_are_not_wanted_any_more_end_within_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "endless.safetensors").write_bytes(bytes(64))
    many = threading.Event()

    def endless(descriptor: int, position: int, size: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        if position > 64 * 10:
            many.set()

    monkeypatch.setattr("dgpp.checkpoint.digests.drop_cached", endless)
    background = BackgroundDigests(tmp_path)
    assert many.wait(60)
    background.close()
    assert background.report() == {"state": "computing", "model": None, "files": {}, "damaged": []}
