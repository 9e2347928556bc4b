"""The `dgpp` command. Only the command that is called is imported, so `--help` and `--version` answer at once.

Each command is the function of its name in `dgpp/cli/<name>.py`, with its options as annotated parameters. Bad input
of any kind is one line on stderr and exit status 2.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from dgpp import __version__
from dgpp.checkpoint.errors import CheckpointError

COMMANDS = {
    "serve": "Serve a model with an OpenAI-compatible HTTP API.",
    "chat": "Talk to a model in the terminal.",
    "generate": "Continue one prompt.",
    "show": "Show every tensor of a model and where it is cut.",
    "formats": "List the weight formats.",
    "audit": "Show what a checkpoint is made of, and its digests.",
    "claims": "Check the exactness claims on a model.",
    "pull": "Download a model from the hub into the local cache.",
    "fixture": "Write a tiny random checkpoint in a release's layout.",
    "quantize": "Write a model in another weight format, rounded to nearest.",
    "compose": "Put the NVFP4 experts of GLM-5.3-Flash into its FP8 release.",
}


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"dgpp {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Published, quantized LLM checkpoints, run as published."""


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """The application for one command line: the command it names is the real one, the others only have their help."""
    app = typer.Typer(
        name="dgpp", add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None
    )
    app.callback()(_root)
    called = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, summary in COMMANDS.items():
        app.command(name, short_help=summary)(_function(name) if name == called else _not_called)
    return app


def _function(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(importlib.import_module(f"dgpp.cli.{name}"), name)
    return function


def _not_called() -> None:
    """Stands for the commands of which only the summary is printed."""


def _other_refusals() -> tuple[type[Exception], ...]:
    """The other errors that mean bad input. Their modules are imported only once something went wrong."""
    from dgpp.engine.options import OptionsError
    from dgpp.engine.request import RequestRefused
    from dgpp.models.family import ConfigError
    from dgpp.text.template import TemplateError
    from dgpp.text.tokenizer import TokenizerError

    return ConfigError, OptionsError, TokenizerError, TemplateError, RequestRefused


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line (by default the process's) and exits the process with its status."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        build_app(arguments)(args=arguments, prog_name="dgpp")
    except Exception as error:
        if not isinstance(error, CheckpointError) and not isinstance(error, _other_refusals()):
            raise
        print(f"dgpp: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
