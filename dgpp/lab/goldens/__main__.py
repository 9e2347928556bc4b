"""`python -m dgpp.lab.goldens`: compares all goldens with what is computed now; `--write` makes them anew. With
`--kernels triton`, on a CUDA device, those of its architecture: every Triton kernel, and whole steps.

Both print what moved. Exit status of a comparison: 1 when something moved or is judged to be wrong, 2 when the present
key has no golden for a case.
"""

from __future__ import annotations

from typing import Annotated

import typer

from dgpp.lab.goldens.cases import CASES, REAL
from dgpp.lab.goldens.check import check
from dgpp.lab.goldens.device import DEVICE_CASES
from dgpp.lab.goldens.manifest import ManifestError

SHOWN = 12
"""Values of one case that are printed when more have moved."""


def main(
    only: Annotated[list[str] | None, typer.Option(help="Name of a case; may be given several times.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Make what is computed now the golden.")] = False,
    kernels: Annotated[str | None, typer.Option(help="Kernels by name; the default ones without.")] = None,
) -> None:
    """Without `--only`, all cases but those that need weights from outside the repository."""
    known = DEVICE_CASES if kernels == "triton" else CASES
    names = only or [name for name in known if name not in REAL]
    if unknown := [name for name in names if name not in known]:
        raise typer.BadParameter(f"--only {unknown[0]!r} is unknown; known are: {', '.join(known)}")
    results, failed = [], False
    for name in names:
        try:
            result = check(known[name], kernels=kernels, write=write)
        except ManifestError as error:
            raise typer.BadParameter(str(error)) from None
        except (RuntimeError, ValueError) as error:  # a kernel that cannot run: the other cases are still worth knowing
            print(f"{name:17} FAILED: {type(error).__name__}: {str(error)[:400]}", flush=True)
            failed = True
            continue
        results.append(result)
        print(result, flush=True)
        for moved in result.moved[:SHOWN]:
            print(f"    {moved}")
        if len(result.moved) > SHOWN:
            print(f"    and {len(result.moved) - SHOWN} more")
    if failed:
        raise typer.Exit(1)
    if write:
        return
    if not all(result.stands for result in results):
        raise typer.Exit(1)
    if not all(result.complete for result in results):
        raise typer.Exit(2)


if __name__ == "__main__":
    typer.run(main)
