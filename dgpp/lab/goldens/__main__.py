"""`python -m dgpp.lab.goldens`: compares all goldens with what is computed now; `--write` makes them anew.

Both print what moved. Exit status of a comparison: 1 when something moved or is judged to be wrong, 2 when the present
key has no golden for a case.
"""

from __future__ import annotations

from typing import Annotated

import typer

from dgpp.lab.goldens.cases import CASES, REAL
from dgpp.lab.goldens.check import check
from dgpp.lab.goldens.manifest import ManifestError

SHOWN = 12
"""Values of one case that are printed when more have moved."""


def main(
    only: Annotated[list[str] | None, typer.Option(help="Name of a case; may be given several times.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Make what is computed now the golden.")] = False,
    kernels: Annotated[str | None, typer.Option(help="Kernels by name; the default ones without.")] = None,
) -> None:
    """Without `--only`, all cases but those that need weights from outside the repository."""
    names = only or [name for name in CASES if name not in REAL]
    if unknown := [name for name in names if name not in CASES]:
        raise typer.BadParameter(f"--only {unknown[0]!r} is unknown; known are: {', '.join(CASES)}")
    results = []
    for name in names:
        try:
            result = check(CASES[name], kernels=kernels, write=write)
        except ManifestError as error:
            raise typer.BadParameter(str(error)) from None
        results.append(result)
        print(result, flush=True)
        for moved in result.moved[:SHOWN]:
            print(f"    {moved}")
        if len(result.moved) > SHOWN:
            print(f"    and {len(result.moved) - SHOWN} more")
    if write:
        return
    if not all(result.stands for result in results):
        raise typer.Exit(1)
    if not all(result.complete for result in results):
        raise typer.Exit(2)


if __name__ == "__main__":
    typer.run(main)
