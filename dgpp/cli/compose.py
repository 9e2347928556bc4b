"""`dgpp compose`: the GLM-5.3-Flash hybrid of FP8 and NVFP4 from its two sources."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compose(
    base: Annotated[str, typer.Argument(help="The FP8 release: directory or hub id.")],
    experts: Annotated[str, typer.Argument(help="The NVFP4 release that the routed experts come from.")],
    target: Annotated[Path | None, typer.Argument(help="New directory to write to; not needed with --dry-run.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check both sources and say what would be written.")
    ] = False,
) -> None:
    """Writes the FP8 release with the routed experts of its sparse layers from the NVFP4 release.

    Every tensor is copied as it is, read back and compared; the SHA-256 of every file is printed.
    """
    from dgpp.checkpoint.compose import compose as write_hybrid
    from dgpp.checkpoint.compose import plan
    from dgpp.checkpoint.digests import digest_files, model_files
    from dgpp.checkpoint.errors import CheckpointError
    from dgpp.checkpoint.hub import resolve
    from dgpp.checkpoint.reader import Checkpoint
    from dgpp.cli.audit import digest_lines
    from dgpp.cli.opening import bytes_bar

    if target is None and not dry_run:
        raise CheckpointError("usage: dgpp compose BASE EXPERTS TARGET, or --dry-run without a target")
    planned = plan(Checkpoint.open(resolve(base)), Checkpoint.open(resolve(experts)))
    layers = f"layers {planned.layers[0]} to {planned.layers[-1]}"
    print(
        f"{len(planned.sources):,} tensors, {planned.nbytes:,} bytes; {planned.replaced:,} expert matrices of {layers} "
        f"in NVFP4 instead of FP8"
    )
    if dry_run or target is None:
        return
    with bytes_bar("composing") as progress:
        write_hybrid(planned, target, progress=progress)
    with bytes_bar("reading") as progress:
        digests = digest_files(model_files(target), progress)
    for line in digest_lines(digests):
        print(line)
    print(target)
