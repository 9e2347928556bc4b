"""`dgpp quantize`: a BF16 checkpoint in another weight format, rounded to nearest."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def quantize(
    source: Annotated[str, typer.Argument(help="Directory or hub id of an unquantised model.")],
    target: Annotated[Path, typer.Argument(help="New directory to write to.")],
    format: Annotated[str, typer.Option(help="Tag of a weight format, see `dgpp formats`.")],
    head: Annotated[bool, typer.Option("--head", help="Also the head, where it is not tied to the embedding.")] = False,
    keep_unfit: Annotated[
        bool, typer.Option("--keep-unfit", help="Leave linears as they are whose shape the format cannot hold.")
    ] = False,
) -> None:
    """Writes the model in a weight format, in the layout of its releases. A research tool: every weight is rounded to
    nearest, without any calibration, so published checkpoints of the same format are usually better.

    Embedding and norms stay as they are, and so does the head unless --head.
    """
    from dgpp.checkpoint.hub import resolve
    from dgpp.checkpoint.quantize import quantize as write_quantized
    from dgpp.checkpoint.reader import Checkpoint
    from dgpp.cli.opening import bytes_bar
    from dgpp.models import family_of

    checkpoint = Checkpoint.open(resolve(source))
    family = family_of(checkpoint.config)
    tree = family.tree(family.config(checkpoint.config))
    print("dgpp: rounding to nearest (RTN), without calibration: a research tool", file=sys.stderr)
    with bytes_bar("quantising") as progress:
        done = write_quantized(checkpoint, tree, format, target, head=head, keep_unfit=keep_unfit, progress=progress)
    kept = f", {len(done.kept)} linears as they were" if done.kept else ""
    size = f"{done.before:,} bytes of tensors became {done.after:,}"
    print(f"{target}: {len(done.modules)} linears in {format}{kept}; {size}")
