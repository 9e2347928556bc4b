"""`dgpp pull`: downloads a model into the local hub cache."""

from __future__ import annotations

from typing import Annotated

import typer


def pull(
    model: Annotated[str, typer.Argument(help="Hub id, ORG/NAME.")],
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bars.")] = False,
) -> None:
    """Downloads config, tokenizer and weights, checks that they are complete, and prints their directory."""
    from dgpp.checkpoint import hub
    from dgpp.checkpoint.reader import Checkpoint

    directory = hub.pull(model, revision, progress=not quiet)
    checkpoint = Checkpoint.open(directory)
    print(f"{directory}: {len(checkpoint.tensors)} tensors, {checkpoint.nbytes:,} bytes")
