"""`dgpp compose`: the plan, and the hybrid with its digests."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgpp.checkpoint.reader import Checkpoint
from dgpp.cli.main import main
from tests.checkpoint.test_compose import write_base, write_experts


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as caught:
        main(["compose", *map(str, arguments)])
    return int(caught.value.code or 0), capsys.readouterr().out


def test_a_dry_run_writes_nothing_and_a_run_prints_digests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, experts = write_base(tmp_path / "base"), write_experts(tmp_path / "experts")
    status, planned = run(capsys, base, experts, "--dry-run")
    assert status == 0
    assert "18 expert matrices of layers 1 to 2 in NVFP4 instead of FP8" in planned
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base", "experts"]
    status, printed = run(capsys, base, experts, tmp_path / "new")
    assert status == 0
    assert printed.startswith(planned)
    assert "  model.safetensors\n" in printed
    assert "model digest: " in printed
    assert Checkpoint.open(tmp_path / "new").config["quantization_config"]["quant_method"] == "dgpp_mixed"
    assert run(capsys, base, experts, tmp_path / "new")[0] == 2
    assert run(capsys, base, experts)[0] == 2
