"""Benchmark records: what is refused, what is written, and the README that must agree with them."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dgpp.ops import records
from dgpp.ops.records import RecordError, check_rows, main, read_records, write_record

SPEED = {
    "name": "decode, 1 stream",
    "streams": 1,
    "tokens_per_second": 50.0,
    "seconds": 2.0,
    "bytes": 26_900_000_000,
    "gbps": 13.45,
    "fraction": 0.686,
}
READ = {"name": "read bandwidth", "seconds": 0.5, "bytes": 9_800_000_000, "gbps": 19.6}


def test_a_record_says_where_with_what_and_how_much(tmp_path: Path) -> None:
    path = write_record("decode_cpu", [READ, SPEED], extra={"model": "SmolLM2-135M"}, root=tmp_path)
    record = json.loads(path.read_text())
    assert path.parent.parent == tmp_path
    assert path.name == "decode_cpu.json"
    assert record["device"] == records.this_device()
    assert record["versions"].keys() == {"python", "dgpp", "platform", "jax", "jaxlib", "numpy"}
    assert all(record["versions"].values())
    assert record["extra"] == {"model": "SmolLM2-135M"}
    assert record["rows"] == [READ, SPEED]
    assert read_records(tmp_path) == [record]


def test_the_device_is_the_folder(tmp_path: Path) -> None:
    path = write_record("read", [READ], device="NVIDIA H200 (1x)", root=tmp_path)
    assert path == tmp_path / "nvidia-h200-1x" / "read.json"
    assert records.this_device().endswith((" core", " cores"))


def test_records_go_to_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert write_record("read", [READ], device="cpu") == Path("bench/records/cpu/read.json")
    assert (tmp_path / "bench/records/cpu/read.json").is_file()


def test_the_revision_is_the_commit_and_says_when_files_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "dgpp" / "__init__.py"
    package.parent.mkdir()
    package.write_text("")
    monkeypatch.setattr(records.dgpp, "__file__", str(package))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert records.revision() is None

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
        return subprocess.run(
            ["git", "-C", tmp_path, *identity, *arguments], check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "x")
    commit = git("rev-parse", "HEAD").strip()
    assert records.revision() == commit
    package.write_text("changed")
    assert records.revision() == f"{commit}-dirty"
    monkeypatch.setenv("DGPP_REVISION", "abc")
    assert records.revision() == "abc"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "no rows"),
        ([{"seconds": 1.0}], "row name None"),
        ([{"name": ""}], "row name ''"),
        ([READ, READ], "not unique"),
        ([{"name": "a", "seconds": math.nan}], "seconds is nan"),
        ([{"name": "a", "seconds": math.inf}], "seconds is inf"),
        ([{"name": "a", "bytes": -1}], "bytes is -1"),
        ([{"name": "a", "seconds": 0.0}], "seconds is 0"),
        ([{"name": "a", "rows": True}], "rows is True"),
        ([{"name": "a", "seconds": None}], "seconds is None"),
        ([{"name": "a", "seconds": "fast"}], "seconds is the text 'fast'"),
        ([{"name": "a", "speed": 3.0}], "speed names no unit"),
        ([{"name": "a", "milliseconds": 3.0}], "milliseconds names no unit"),
        ([{"name": "a", "tokens_per_second": 3.0}], "needs seconds, bytes, gbps, fraction"),
        ([{**SPEED, "gbps": 14.0}], "gbps is 14.0, but bytes/seconds 13.45"),
    ],
)
def test_malformed_rows_are_refused(rows: list[dict[str, Any]], words: str, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=words):
        write_record("decode_cpu", rows, root=tmp_path)
    assert not list(tmp_path.iterdir())


def test_units_are_the_last_word_of_a_name() -> None:
    check_rows("b", [{"name": "a", "first_token_seconds": 0.1, "weights_bytes": 3, "prefill_tokens": 7, "engine": "x"}])
    with pytest.raises(RecordError, match="benchmark name"):
        write_record("Decode CPU", [READ])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_record("decode_cpu", [READ, SPEED], device="cpu", root=tmp_path / "records")
    return tmp_path


def test_a_damaged_record_is_named(root: Path) -> None:
    path = root / "records" / "cpu" / "decode_cpu.json"
    for content in ("{", "[]", '{"benchmark": "x", "rows": []}', '{"benchmark": "x"}'):
        path.write_text(content)
        with pytest.raises(RecordError, match=r"decode_cpu\.json: not a benchmark record"):
            read_records(root / "records")


def test_readme_is_rewritten_between_its_marks_and_checked(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = root / "README.md"
    readme.write_text("# Title\n<!-- records:begin -->\nold\n<!-- records:end -->\nrest\n")
    arguments = ["--records", str(root / "records"), "--readme", str(readme)]
    assert main([*arguments, "--check"]) == 1
    assert "is stale" in capsys.readouterr().err
    assert "old" in readme.read_text()
    assert main(arguments) == 0
    text = readme.read_text()
    assert text.startswith("# Title\n<!-- records:begin -->\n")
    assert text.endswith("<!-- records:end -->\nrest\n")
    assert "decode, 1 stream" in text
    assert "old" not in text
    assert main([*arguments, "--check"]) == 0
    assert main(arguments) == 0
    assert readme.read_text() == text
    write_record("decode_cpu", [READ], device="cpu", root=root / "records")
    assert main([*arguments, "--check"]) == 1


def test_without_a_readme_it_prints(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--records", str(root / "records")]) == 0
    assert "| read bandwidth |" in capsys.readouterr().out


def test_nothing_to_render_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--records", str(tmp_path)]) == 2
    assert "has no <device>/<benchmark>.json" in capsys.readouterr().err


def test_a_readme_without_marks_is_an_error(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = root / "README.md"
    for text in ("", "<!-- records:end --> <!-- records:begin -->", "<!-- records:begin -->"):
        readme.write_text(text)
        assert main(["--records", str(root / "records"), "--readme", str(readme)]) == 2
        assert "records:begin" in capsys.readouterr().err
        assert readme.read_text() == text
