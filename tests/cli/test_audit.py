"""`dgpp audit`: formats, ranks, traffic and digests of a checkpoint."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from dgpp.checkpoint.fixture import write_fixture
from dgpp.cli.main import main
from dgpp.models import FAMILIES


def audited(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as caught:
        main(["audit", *arguments])
    return int(caught.value.code or 0), capsys.readouterr().out


def cells(printed: str, first: str) -> list[str]:
    rows = [[cell.strip() for cell in line.split("│")] for line in printed.splitlines() if "│" in line]
    return next(row for row in rows if row[0] == first)


def test_a_quantised_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = write_fixture(FAMILIES["llama"], "int4-int8-g64", tmp_path / "model")
    status, printed = audited(capsys, str(directory), "--rows", "1", "--rows", "4")
    assert status == 0
    assert "quantization compressed-tensors" in printed
    # 2 layers of [512, 256] twice and [256, 512]: 4 bits, 16 for each 64, and the shapes of the modules
    weights = 2 * 3 * 512 * 256
    assert cells(printed, "int4_g64")[1:3] == ["6", f"{weights:,}"]
    assert int(cells(printed, "int4_g64")[3].replace(",", "")) >= weights // 2 + weights // 32
    assert {"bf16", "int8_g64"} <= {line.split("│")[0].strip() for line in printed.splitlines()}
    held = [int(cells(printed, str(world))[1].replace(",", "")) for world in (1, 2, 4)]
    assert held == sorted(held, reverse=True)
    one, four = (int(cells(printed, "1")[column].replace(",", "")) for column in (2, 3))
    assert one < held[0]
    assert four == pytest.approx(one / 4, rel=0.01)
    assert "memory available here" in printed


def test_the_state_is_listed_by_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = write_fixture(FAMILIES["qwen_flash_next"], "tiny", tmp_path / "model")
    status, printed = audited(capsys, str(directory), "--no-digests")
    assert status == 0
    # per token and rank: 1 layer, 2 K/V heads of 32 in bf16; four ranks share them in pairs
    assert cells(printed, "k")[1:4] == ["128", "64", "64"]
    assert cells(printed, "index")[1:] == ["8", "8", "8", "", "", ""]  # 16 values of bf16 for every 4 tokens
    # 3 layers, 6 value heads of 16 x 16 in float32
    assert cells(printed, "delta.s")[1:5] == ["", "", "", f"{3 * 6 * 16 * 16 * 4:,}"]
    assert cells(printed, "mtp.k")[1] == "128"
    assert int(cells(printed, "all")[1].replace(",", "")) == 2 * (128 + 128 + 8)


def test_W14_digests_are_printed_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = write_fixture(FAMILIES["llama"], "tiny", tmp_path / "model")
    status, printed = audited(capsys, str(directory))
    assert status == 0
    shard = directory / "model-00002-of-00002.safetensors"
    line = f"{hashlib.sha256(shard.read_bytes()).hexdigest()}  {shard.name}"
    assert line in printed.splitlines()
    sums = tmp_path / "sums"
    sums.write_text("".join(f"{text}\n" for text in printed.splitlines() if re.match("[0-9a-f]{64}  ", text)))
    assert audited(capsys, str(directory), "--sums", str(sums))[0] == 0
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    status, printed = audited(capsys, str(directory), "--sums", str(sums))
    assert status == 1
    assert f"{shard.name} differs from {sums}" in printed.splitlines()


def test_digests_can_be_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    status, printed = audited(capsys, "--no-digests")
    assert status == 0
    assert "model digest" not in printed
    assert "model.safetensors" not in printed


def test_a_format_that_cannot_be_sliced_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = write_fixture(FAMILIES["llama"], "tiny-9x3", tmp_path / "model")
    with pytest.raises(SystemExit):
        main(["quantize", str(directory), str(tmp_path / "new"), "--format", "int8_g64"])
    capsys.readouterr()
    printed = audited(capsys, str(tmp_path / "new"), "--no-digests")[1]
    assert cells(printed, "2")[1].startswith("cannot be sliced: model.layers.{layer}.self_attn.o_proj: int8_g64")
