"""`dgpp quantize` and `dgpp formats`, and that the result serves."""

from __future__ import annotations

from pathlib import Path

import pytest

import dgpp
from dgpp.checkpoint.fixture import write_fixture
from dgpp.cli.main import main
from dgpp.models import FAMILIES


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return (int(caught.value.code or 0), *capsys.readouterr())


def test_a_quantised_model_generates_and_says_how_it_was_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_fixture(FAMILIES["llama"], "tiny", tmp_path / "source")
    target = tmp_path / "new"
    status, out, err = run(capsys, "quantize", str(source), str(target), "--format", "int8_g64", "--keep-unfit")
    assert status == 0
    assert "rounding to nearest (RTN), without calibration: a research tool" in err
    assert out.startswith(f"{target}: 21 linears in int8_g64, 1 linears as they were; ")
    model = dgpp.load(str(target))
    assert model.weights["layers"]["down_proj"].format == "int8_g64"
    plain = dgpp.load(str(source))
    prompt = (5, 6, 7, 8, 9, 10)
    difference = abs(model.forward(prompt).logits - plain.forward(prompt).logits).max()
    assert 0 < difference < 0.1


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(write_fixture(FAMILIES["llama"], "tiny", tmp_path / "source"))
    status, out, err = run(capsys, "quantize", source, str(tmp_path / "new"), "--format", "nf4i8")
    assert (status, out) == (2, "")
    assert "cannot be quantised: nf4i8: K = 64 is not a multiple of 128" in err.splitlines()[-1]
    assert not (tmp_path / "new").exists()
