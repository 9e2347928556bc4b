from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from dgpp.lab.goldens import CASES, check, manifest
from dgpp.lab.goldens.__main__ import main
from dgpp.lab.goldens.case import Computed, Judgement, Values, digest, shown
from dgpp.lab.goldens.cases import REAL
from dgpp.lab.goldens.check import GoldenResult, Moved
from dgpp.lab.goldens.device import DEVICE_CASES, distance
from dgpp.lab.goldens.key import key
from dgpp.lab.goldens.manifest import ManifestError
from dgpp.lab.goldens.step import judge_logits


@pytest.mark.parametrize("name", [name for name in CASES if name not in REAL])
def test_the_goldens_of_the_repository_hold(name: str) -> None:
    hold(check(CASES[name]))


@pytest.mark.parametrize("name", ["linear", "attention"])
def test_the_reference_kernels_keep_the_same_goldens(name: str) -> None:
    hold(check(CASES[name], kernels="reference"))


@pytest.mark.gpu
@pytest.mark.parametrize("name", DEVICE_CASES)
def test_the_goldens_of_the_device_hold(name: str) -> None:
    hold(check(DEVICE_CASES[name], kernels="triton"))


def test_every_golden_of_a_device_belongs_to_a_case() -> None:
    for folder in manifest.directory().glob("sm_*"):
        assert {path.stem for path in folder.glob("*.json")} <= set(DEVICE_CASES), folder


def test_kernels_of_triton_are_pinned_to_its_version_too(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"jax": "0.11.2", "triton": "3.6.0"}
    monkeypatch.setattr("dgpp.lab.goldens.key.version", found.__getitem__)
    assert key().endswith("/jax-0.11")
    assert key("triton") == f"{key()}/triton-3.6"


def test_a_case_of_a_kernel_digests_its_inputs_and_every_output(monkeypatch: pytest.MonkeyPatch) -> None:
    case = DEVICE_CASES["select_blocks"]
    computed = case.compute("reference")
    assert set(computed.portable) == {"inputs"}
    assert set(computed.pinned) == {"512 of 2500, output 0"}
    assert computed.judge() == Judgement(0.0, 0.0)
    assert case.folder == key().split("/")[0]


def test_the_distance_of_a_kernel_counts_what_is_not_finite() -> None:
    wanted = np.array([3.0, 4.0, np.inf, np.nan])
    assert distance(wanted, wanted) == 0
    assert distance(np.array([3.5, 4.0, np.inf, np.nan]), wanted) == 0.1
    assert not distance(np.array([3.0, 4.0, 5.0, np.nan]), wanted) <= 1
    assert not distance(np.array([3.0, np.nan, np.inf, np.nan]), wanted) <= 1
    assert distance(wanted[:2], wanted) == np.inf


@pytest.mark.real
def test_the_golden_of_smollm2_holds() -> None:
    hold(check(CASES["smollm2"]))


def hold(result: GoldenResult) -> None:
    """On a key without a golden the judgement by float64 counts, and is reported."""
    if not result.complete:
        warnings.warn(str(result), stacklevel=2)
    assert result.stands, "\n".join([str(result), *map(str, result.moved)])
    assert result.compared or result.judgement


# --- what a check reports ---------------------------------------------------------------------------------------------


@dataclass
class Given:
    """A case whose values are given."""

    portable: Values = field(default_factory=dict)
    pinned: Values = field(default_factory=dict)
    error: float = 0.0
    name: str = "given"
    folder: str = "kernels"
    inputs: dict[str, Any] = field(default_factory=lambda: {"seed": 0, "shape": (1, 2)})

    def compute(self, kernels: str | None) -> Computed:
        return Computed(lambda: Judgement(self.error, 0.5), self.portable, self.pinned)


BEFORE = Given({"a": "1", "b": "2"}, {"c": "3", "d": "4"})


def test_what_was_written_is_found_again_and_compared(tmp_path: Path) -> None:
    assert check(BEFORE, root=tmp_path, write=True).compared == 0
    result = check(BEFORE, root=tmp_path)
    assert (result.compared, result.moved, result.judgement) == (4, (), None)
    assert result.stands
    assert result.complete


def test_every_value_that_moved_is_named_with_both_sides(tmp_path: Path) -> None:
    check(BEFORE, root=tmp_path, write=True)
    result = check(Given({"a": "1", "b": "9"}, {"c": "3", "e": "5"}), root=tmp_path)
    assert result.moved == (Moved("b", "2", "9"), Moved("e", None, "5"), Moved("d", "4", None))
    assert not result.stands
    assert "3 moved, the first is b: 2 -> 9" in str(result)


def test_other_inputs_count_as_moved(tmp_path: Path) -> None:
    check(BEFORE, root=tmp_path, write=True)
    other = Given(BEFORE.portable, BEFORE.pinned, inputs={"seed": 1})
    assert not check(other, root=tmp_path).stands


def test_a_key_without_a_golden_is_judged_and_never_created(tmp_path: Path) -> None:
    check(BEFORE, root=tmp_path, write=True)
    path = tmp_path / "kernels" / "given.json"
    text = path.read_text().replace(key(), "cpu-other/jax-9.9")
    path.write_text(text)
    result = check(BEFORE, root=tmp_path)
    assert (result.compared, result.judgement) == (2, Judgement(0.0, 0.5))
    assert result.stands
    assert not result.complete
    assert "no golden for this key: 0 from float64, within the bound of 0.5" in str(result)
    assert not check(Given(BEFORE.portable, BEFORE.pinned, error=0.6), root=tmp_path).stands
    assert not check(Given(BEFORE.portable, BEFORE.pinned, error=float("nan")), root=tmp_path).stands
    assert path.read_text() == text


def test_writing_one_key_keeps_the_others(tmp_path: Path) -> None:
    check(BEFORE, root=tmp_path, write=True)
    path = tmp_path / "kernels" / "given.json"
    path.write_text(path.read_text().replace(key(), "cpu-other/jax-9.9"))
    check(Given({"a": "7"}, {"c": "8"}), root=tmp_path, write=True)
    stored = json.loads(path.read_text())
    assert stored["portable"] == {"a": "7"}
    assert stored["pinned"]["cpu-other/jax-9.9"]["values"] == {"c": "3", "d": "4"}
    assert stored["pinned"][key()]["values"] == {"c": "8"}
    assert set(stored["pinned"][key()]["versions"]) == {"jax", "jaxlib", "numpy", "ml_dtypes"}


def test_comparing_nothing_does_not_stand() -> None:
    assert not GoldenResult("x", "y", 0, ()).stands
    assert not GoldenResult("x", "y", 0, ()).complete


@pytest.mark.parametrize("text", ["{", "[]", '{"inputs": {}}', '{"inputs": {}, "portable": {}, "pinned": {"k": 1}}'])
def test_a_broken_manifest_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kernels" / "given.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ManifestError, match=r"kernels/given\.json is not a manifest"):
        check(BEFORE, root=tmp_path)


def test_a_digest_follows_every_bit_and_the_order_of_axes() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert digest(x) == digest(x.tobytes()) == digest(np.asfortranarray(x))
    assert digest(x) != digest(x.T)
    assert digest(x) != digest(np.where(x == 0, np.float32(-0.0), x))
    assert shown(np.float32([1 / 3, 1e-30])) == "0.333333343 1e-30"


def test_logits_are_judged_by_their_relative_error() -> None:
    exact = np.ones((2, 2))
    assert judge_logits(np.full((2, 2), 1.01, np.float32), exact, 36).stands
    assert not judge_logits(np.full((2, 2), 1.03, np.float32), exact, 36).stands
    assert not judge_logits(np.full((2, 2), np.nan, np.float32), exact, 36).stands


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_prints_what_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    app = typer.Typer()
    app.command()(main)

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["--only", "linear", *arguments])
        return done.exit_code, done.output

    monkeypatch.setattr(manifest, "directory", lambda: tmp_path)
    status, output = run()
    assert status == 2
    assert "0 values compared, no golden for this key" in output
    assert run("--write")[0] == 0
    assert run()[0] == 0
    path = tmp_path / "kernels" / "linear.json"
    stored = json.loads(path.read_text())
    good, stored["portable"]["leaves"] = stored["portable"]["leaves"], "0123456789abcdef"
    path.write_text(json.dumps(stored))
    status, output = run()
    assert status == 1
    assert f"    leaves: 0123456789abcdef -> {good}" in output
    assert run("--write")[0] == 0
    assert run()[0] == 0
