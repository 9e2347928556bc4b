"""What the commands that run a model share: opening it with a progress bar, and its text side."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from dgpp.checkpoint.load import Progress
    from dgpp.engine.open import Opened
    from dgpp.engine.options import ModelOptions
    from dgpp.engine.settings import CoreSettings
    from dgpp.serve.prompt import Template
    from dgpp.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextSide:
    """Tokenizer, what writes prompts (None where the checkpoint has nothing for it) and the ids that end an answer."""

    tokenizer: Tokenizer
    template: Template | None
    eos: frozenset[int]


def open_for_command(
    model: str | None, settings: CoreSettings, kernels: str | None, options: ModelOptions | None = None
) -> Opened:
    """The opened model, with a bar while its weights are read; on stderr the options that are set, and notes about the
    checkpoint.

    Wrong settings and options end the command with status 2.
    """
    from dgpp.engine.open import open_model
    from dgpp.engine.options import OptionsError
    from dgpp.engine.settings import SettingsError
    from dgpp.kernels import KINDS, default, select

    if kernels and kernels not in KINDS:
        raise typer.BadParameter(f"--kernels {kernels!r} is unknown; known are: {', '.join(KINDS)}")
    try:
        with loading_bar() as progress:
            opened = open_model(model, settings, select(kernels) if kernels else default(), progress, options=options)
    except (SettingsError, OptionsError) as error:
        raise typer.BadParameter(str(error)) from None
    for line in opened.options.lines():
        print(f"dgpp: {line}", file=sys.stderr)
    for note in opened.notes:
        print(f"dgpp: note: {note}", file=sys.stderr)
    return opened


def allow_virtual_devices(count: int) -> None:
    """Makes the CPU `count` devices for a mesh world, if JAX is not imported yet and the user set no such flag."""
    flag = "--xla_force_host_platform_device_count"
    flags = os.environ.get("XLA_FLAGS", "")
    if count > 1 and flag not in flags and "jax" not in sys.modules:
        os.environ["XLA_FLAGS"] = f"{flags} {flag}={count}".strip()


def loading_bar() -> AbstractContextManager[Progress]:
    """The bar for reading weights."""
    return bytes_bar("loading")


@contextmanager
def bytes_bar(description: str) -> Iterator[Progress]:
    """A progress function that draws bytes and bytes per second on stderr when that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def text_side(opened: Opened, chat_template: str | None = None) -> TextSide:
    """The text side of an opened model, with the chat template of a file in place of its own if one is named.

    Raises CheckpointError, TokenizerError or TemplateError for files that cannot be used.
    """
    from dgpp.checkpoint.config import eos_ids
    from dgpp.text.deepseek_prompt import DeepSeekPrompt
    from dgpp.text.template import ChatTemplate, TemplateMissing
    from dgpp.text.tokenizer import Tokenizer

    directory = opened.checkpoint.directory
    tokenizer = Tokenizer.load(directory)
    template: Template | None
    try:
        if chat_template is not None:
            template = ChatTemplate.load_file(chat_template, tokenizer)
        else:
            template = ChatTemplate.load(directory, tokenizer)
    except TemplateMissing:
        template = DeepSeekPrompt.of(tokenizer.control_tokens)
    return TextSide(tokenizer, template, eos_ids(opened.checkpoint))
