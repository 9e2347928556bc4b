"""`dgpp claims`: checks on a model that its numbers do not depend on how the work was laid out."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from dgpp.cli.model_options import takes_model_options
from dgpp.cli.opening import allow_virtual_devices, open_for_command
from dgpp.engine.options import ModelOptions

if TYPE_CHECKING:
    from dgpp.lab.claims import ClaimResult
    from dgpp.lab.claims.run import Progress

LARGEST_WORLD = 4


@takes_model_options
def claims(
    model: Annotated[str | None, typer.Argument(help="Directory or hub id; the embedded model without one.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Name of a claim; may be given several times.")] = None,
    slots: Annotated[int, typer.Option(help="Sequences held at once.")] = 8,
    pool_tokens: Annotated[int, typer.Option(help="Tokens of the K/V pool.")] = 2048,
    page_tokens: Annotated[int, typer.Option(help="Tokens of a page.")] = 64,
    kernels: Annotated[str | None, typer.Option(help="Kernels by name; the default ones without.")] = None,
    row_families: Annotated[str, typer.Option(help="Row counts that steps are compiled for.")] = "4,16,64,256",
    effort: Annotated[str, typer.Option(help='How much is compared: "full" or "quick".')] = "full",
    *,
    options: ModelOptions,
) -> None:
    """Prints one line for each claim: its name, the family, the backend, how much was compared, and `equal` or the
    first difference.

    Exit status: 1 when a claim does not hold, 2 when nothing could be compared for one, 0 when all hold.
    """
    allow_virtual_devices(LARGEST_WORLD)
    from dgpp.engine.settings import CoreSettings
    from dgpp.lab.claims import CLAIMS, EFFORTS, run_claims
    from dgpp.lab.model import Model

    names = only or list(CLAIMS)
    unknown = [name for name in names if name not in CLAIMS]
    if unknown:
        raise typer.BadParameter(f"--only {unknown[0]!r} is unknown; known are: {', '.join(CLAIMS)}")
    if effort not in EFFORTS:
        raise typer.BadParameter(f"--effort {effort!r} is unknown; known are: {', '.join(EFFORTS)}")
    if not re.fullmatch(r"[1-9]\d*(,[1-9]\d*)*", row_families):
        raise typer.BadParameter(f"--row-families {row_families!r} must be numbers with commas between")
    families = tuple(int(rows) for rows in row_families.split(","))
    settings = CoreSettings(slots=slots, pool_tokens=pool_tokens, page_tokens=page_tokens, row_families=families)
    examined = Model.of(open_for_command(model, settings, kernels, options))
    results: list[ClaimResult] = []
    for name in names:
        with _bar() as progress:
            results += run_claims(examined, [name], progress, effort=EFFORTS[effort])
        print(_line(results[-1]), flush=True)
    status = exit_status(results)
    if status:
        raise typer.Exit(status)


def exit_status(results: Sequence[ClaimResult]) -> int:
    """1 when a claim does not hold, else 2 when nothing was compared for one, else 0."""
    if any(result.difference is not None for result in results):
        return 1
    return 2 if any(not result.compared for result in results) else 0


def _line(result: ClaimResult) -> str:
    return f"{result.claim:8} {result.family:8} {result.backend:14} {result.compared:6} compared  {result.verdict}"


@contextmanager
def _bar() -> Iterator[Progress]:
    """A progress function that draws on stderr when that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=None)
        yield lambda claim, done, total: bar.update(task, description=claim, completed=done, total=total)
