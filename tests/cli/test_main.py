"""The command line itself: what it imports, what it prints, and how it refuses."""

from __future__ import annotations

import subprocess
import sys

import pytest

import dgpp
from dgpp.checkpoint.errors import CheckpointError
from dgpp.cli import main as cli


def exit_code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    return int(caught.value.code or 0)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--version") == 0
    assert capsys.readouterr().out == f"dgpp {dgpp.__version__}\n"


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--help") == 0
    printed = capsys.readouterr().out
    for name, summary in cli.COMMANDS.items():
        assert f"{name} " in printed
        assert summary in printed


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["pull", "--help"]])
def test_K1_version_and_help_import_neither_jax_nor_numpy(arguments: list[str]) -> None:
    script = (
        "import sys\nfrom dgpp.cli.main import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit as end:\n    assert not end.code\n"
        "assert not {'jax', 'numpy', 'flask', 'huggingface_hub'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_is_there_and_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(name, "--help") == 0
    assert f"dgpp {name}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["nonsense"], ["show", "--nonsense"], ["show", "a", "b"], ["pull"]])
def test_wrong_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(*arguments) == 2
    assert "Usage" in capsys.readouterr().err


def test_module_entry_point() -> None:
    done = subprocess.run([sys.executable, "-m", "dgpp.cli.main", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"dgpp {dgpp.__version__}\n")


def refusals() -> list[Exception]:
    from dgpp.engine.request import ContextLengthExceeded
    from dgpp.models import ConfigError
    from dgpp.text.template import TemplateMissing
    from dgpp.text.tokenizer import TokenizerError

    kinds = (CheckpointError, ConfigError, TokenizerError, TemplateMissing, ContextLengthExceeded)
    return [kind("no such model") for kind in kinds]


@pytest.mark.parametrize("error", refusals(), ids=lambda error: type(error).__name__)
def test_bad_input_is_one_line_and_status_2(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> None:
        raise error

    monkeypatch.setattr(cli, "_function", lambda name: command)
    assert exit_code("show") == 2
    assert capsys.readouterr() == ("", "dgpp: no such model\n")


def test_a_bug_is_not_disguised_as_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    def command() -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(cli, "_function", lambda name: command)
    with pytest.raises(ValueError, match="a bug"):
        cli.main(["show"])
