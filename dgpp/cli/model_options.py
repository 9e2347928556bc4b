"""The model options as flags: every command that runs a model has the same ones, from this one list."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from dgpp.cli.flag_group import takes_group
from dgpp.engine.options import CHOICES, ModelOptions, OptionsError

HELP = {
    "dense_weights": "fp8: hold the BF16 linears that the family lists as block FP8.",
    "bf16_weights": "bf12: hold BF16 linears in 12 bits, without loss.",
    "ngram_table": "mmap: leave the n-gram table in its files.",
    "ngram_table_model": "Directory or hub id of the checkpoint whose n-gram table to use.",
    "delta_form": "chunked: read long prompts in chunks of 64 in DeltaNet layers.",
    "rope_scaling": "A YaRN ramp as JSON: factor, original_max_position_embeddings, ...",
}
"""The options that can be given on a command line, with their help. The commands load no draft layer."""


def takes_model_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command with a flag for every model option instead of its parameter `options`, which it gets from them."""
    return takes_group(command, "options", [_flag(key) for key in HELP], model_options)


def model_options(given: Mapping[str, Any]) -> ModelOptions:
    """The options from the values of flags. What is wrong with them ends the command with status 2."""
    values = dict(given)
    if values["rope_scaling"] is not None:
        try:
            values["rope_scaling"] = json.loads(values["rope_scaling"])
        except json.JSONDecodeError as error:
            raise typer.BadParameter(f"--rope-scaling is not JSON: {error}") from None
    try:
        return ModelOptions(**values)
    except OptionsError as error:
        raise typer.BadParameter(str(error)) from None


def _flag(key: str) -> inspect.Parameter:
    known = f" [{', '.join(CHOICES[key])}]" if key in CHOICES else ""
    option = typer.Option(f"--{key.replace('_', '-')}", help=f"{HELP[key]}{known}")
    default = None if key == "rope_scaling" else getattr(ModelOptions, key)
    kind = Annotated[str | None, option] if default is None else Annotated[str, option]
    return inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
