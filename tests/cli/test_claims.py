from __future__ import annotations

import pytest

from dgpp.cli.claims import exit_status
from dgpp.cli.main import main
from dgpp.lab.claims import ClaimResult

EQUAL = ClaimResult("rows", "llama", "cpu/cpu", 5, None)
DIFFERS = ClaimResult("chunk", "llama", "cpu/cpu", 2, "cut after 1: ...")
NOTHING = ClaimResult("world", "llama", "cpu/cpu", 0, None, "no devices")


def test_a_difference_is_status_1_and_nothing_compared_is_2() -> None:
    assert exit_status([EQUAL, EQUAL]) == 0
    assert exit_status([EQUAL, NOTHING]) == 2
    assert exit_status([NOTHING, DIFFERS, EQUAL]) == 1


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["claims", "--pool-tokens", "256", "--page-tokens", "16", *arguments])
    return int(end.value.code or 0)


def test_one_line_says_claim_family_backend_count_and_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--only", "chunk", "--only", "rows", "--slots", "2") == 2
    chunk, rows = capsys.readouterr().out.splitlines()
    assert chunk.split()[:2] == ["chunk", "llama"]
    assert chunk.split()[2].startswith("cpu/")
    assert chunk.split()[3:] == ["3190", "compared", "equal"]
    assert rows.split()[3:5] == ["0", "compared"]
    assert rows.endswith("nothing could be compared (neighbours before and after a row need two slots beside its own)")


def test_an_unknown_claim_lists_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--only", "speed") == 2
    assert "known are: rows, phase, chunk" in capsys.readouterr().err.replace("\n", " ")


def test_an_unknown_effort_and_row_families_that_are_no_numbers_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--effort", "none") == 2
    assert "known are: full, quick" in capsys.readouterr().err.replace("\n", " ")
    assert run("--row-families", "16,x") == 2
    assert "must be numbers" in capsys.readouterr().err


def test_less_effort_compares_less(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--only", "chunk", "--effort", "quick", "--row-families", "16,64", "--slots", "2") == 0
    assert 0 < int(capsys.readouterr().out.split()[3]) < 3190
