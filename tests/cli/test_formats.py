"""`dgpp formats`: one row for every tag, and the vectors that this checkout tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgpp.cli import formats
from dgpp.cli.main import main
from dgpp.formats import FORMATS


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, list[str]]]:
    with pytest.raises(SystemExit) as caught:
        main(["formats", *arguments])
    rows = [[cell.strip() for cell in line.split("│")] for line in capsys.readouterr().out.splitlines() if "│" in line]
    return int(caught.value.code or 0), {row[0]: row[1:] for row in rows}


def test_every_format_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    status, rows = printed(capsys)
    assert status == 0
    assert rows.keys() == FORMATS.keys()
    assert rows["nvfp4"][:3] == ["0.5625", "bf16, f16", ""]
    assert rows["gptq_int4_g128"][0] == "0.515625"  # as it is held, without its zero points
    assert rows["gptq_int4_g128"][3] == "int4_g128_f16"
    assert rows["int4_g64"][2] == "64"


def test_every_quantised_format_has_tested_vectors(capsys: pytest.CaptureFixture[str]) -> None:
    _, rows = printed(capsys)
    kinds = {type(FORMATS[tag]).__name__ for tag, row in rows.items() if not row[-1]}
    assert kinds <= {"BF16", "Dense", "FP8Chunked", "Integers"}


def test_check_runs_the_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_F_3_vector(): pass\n"
        "@pytest.mark.parametrize('x', [1, 0])\n"
        "def test_F_4_vector(x): assert x\n"
        "def test_F_7_vector(): pass\n"
        "def test_F_13_vector(): assert 0\n"
        "def test_other(): assert 0\n"
    )
    monkeypatch.setattr(formats, "TESTS", tmp_path)
    status, rows = printed(capsys, "--check")
    assert status == 1
    assert (rows["nvfp4"][-1], rows["mxfp8"][-1], rows["bf12"][-1], rows["exl3_4_mcg"][-1]) == ("1/2", "1/1", "0/1", "")


def test_check_needs_the_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(formats, "TESTS", tmp_path)
    assert printed(capsys, "--check")[0] == 2
    assert printed(capsys)[0] == 0
