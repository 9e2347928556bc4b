"""The flags of the model options: the same on every command that runs a model, and named when they are set."""

from __future__ import annotations

import inspect

import pytest
import typer

from dgpp.cli.chat import chat
from dgpp.cli.claims import claims
from dgpp.cli.generate import generate
from dgpp.cli.main import main
from dgpp.cli.model_options import HELP, model_options, takes_model_options
from dgpp.cli.serve import serve
from dgpp.engine.options import ModelOptions

UNSET = {
    "dense_weights": "checkpoint",
    "bf16_weights": "checkpoint",
    "ngram_table": "resident",
    "ngram_table_model": "",
    "delta_form": "step",
    "rope_scaling": None,
}


@pytest.mark.parametrize("command", [serve, chat, generate, claims])
def test_every_command_that_runs_a_model_has_them(command: object) -> None:
    parameters = inspect.signature(command).parameters  # type: ignore[arg-type]
    assert {key: parameters[key].default for key in HELP} == UNSET
    assert "options" not in parameters


def test_a_command_gets_them_as_one_value() -> None:
    seen = []

    @takes_model_options
    def command(model: str, *, options: ModelOptions) -> None:
        seen.append((model, options))

    command(model="m", **UNSET)
    command(model="n", **{**UNSET, "ngram_table": "mmap", "rope_scaling": '{"type": "yarn", "factor": 2}'})
    scaling = {"type": "yarn", "factor": 2}
    assert seen == [("m", ModelOptions()), ("n", ModelOptions(ngram_table="mmap", rope_scaling=scaling))]


def status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(["generate", "Once", "--max-tokens", "1", *arguments])
    return int(end.value.code or 0)


def test_what_is_set_is_named_at_start_and_nothing_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    assert status("--bf16-weights", "bf12") == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "dgpp: engine.bf16_weights = bf12: BF16 linears are held in 12 bits; the same results"
    assert lines[1].startswith("dgpp: note: engine.bf16_weights bf12: 0 of ")
    assert status() == 0
    assert "engine." not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--dense-weights", "fp4"), "engine.dense_weights 'fp4' is not supported; supported: checkpoint, fp8"),
        (("--dense-weights", "fp8"), "engine.dense_weights is not supported by family llama"),
        (("--ngram-table", "mmap"), "engine.ngram_table is not supported by family llama"),
        (("--rope-scaling", "{"), "--rope-scaling is not JSON"),
    ],
)
def test_what_cannot_be_is_status_2(capsys: pytest.CaptureFixture[str], arguments: tuple[str, str], words: str) -> None:
    assert status(*arguments) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_the_options_that_json_cannot_say_are_refused() -> None:
    with pytest.raises(typer.BadParameter, match=r"engine\.rope_scaling must be an object"):
        model_options({**UNSET, "rope_scaling": "[1]"})
