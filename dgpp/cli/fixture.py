"""`dgpp fixture`: writes a tiny random checkpoint in a release's layout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def fixture(
    family: Annotated[str | None, typer.Argument(help="Model family.")] = None,
    release: Annotated[str | None, typer.Argument(help="Release of the family, in miniature.")] = None,
    directory: Annotated[Path | None, typer.Argument(help="New directory to write to.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds make equal bytes.")] = 0,
) -> None:
    """Writes the checkpoint, or lists the families and their releases when the arguments are not complete."""
    from dgpp.checkpoint.errors import CheckpointError
    from dgpp.checkpoint.fixture import write_fixture
    from dgpp.models import FAMILIES

    if family is not None and family not in FAMILIES:
        raise CheckpointError(f"no family {family!r}; there are {', '.join(FAMILIES)}")
    if family is None:
        for name, known in FAMILIES.items():
            print(f"{name}: {', '.join(known.releases)}")
    elif release is None or directory is None:
        raise CheckpointError(
            f"usage: dgpp fixture {family} RELEASE DIR, with a release of {', '.join(FAMILIES[family].releases)}"
        )
    else:
        print(write_fixture(FAMILIES[family], release, directory, seed))
