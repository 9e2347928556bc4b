"""`dgpp audit`: what a checkpoint is: its formats, what each rank would hold and read, and the digest of every file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from dgpp.checkpoint.digests import FileDigest
    from dgpp.checkpoint.inventory import Inventory
    from dgpp.checkpoint.spec import SpecTree, TensorSpec

MOST_UNUSED = 20
"""Unused tensors that are named; the others are counted."""


def audit(
    model: Annotated[str | None, typer.Argument(help="Directory or hub id; the embedded model without one.")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.")] = None,
    rows: Annotated[list[int] | None, typer.Option(min=1, help="Rows of a decode step; may be repeated.")] = None,
    digests: Annotated[bool, typer.Option(help="Read all files for their SHA-256.")] = True,
    sums: Annotated[Path | None, typer.Option(help="A file of sha256sum to compare the digests with.")] = None,
) -> None:
    """Prints the inventory, bytes by format, bytes per rank in worlds of 1, 2 and 4, the bytes of weights that a decode
    step reads, the state that a rank keeps per token and per slot, and the SHA-256 of every file.

    Exit status 1 when a file is not the one that its name in the hub's cache, or --sums, says.
    """
    from rich.console import Console

    from dgpp.checkpoint.digests import differing, digest_files, model_files, read_sums
    from dgpp.checkpoint.hub import resolve
    from dgpp.checkpoint.inventory import take_inventory
    from dgpp.checkpoint.quantization import resolve_formats, resolve_tree
    from dgpp.checkpoint.reader import Checkpoint
    from dgpp.checkpoint.traffic import experts_per_token, lookups_per_token
    from dgpp.cli.opening import bytes_bar
    from dgpp.cli.show import PIPE_WIDTH, summary
    from dgpp.cli.state_table import state_table
    from dgpp.engine.settings import CoreSettings
    from dgpp.models import family_of

    directory = resolve(model, revision)
    checkpoint = Checkpoint.open(directory)
    formats = resolve_formats(checkpoint)
    family = family_of(checkpoint.config)
    config = family.config(checkpoint.config)
    tree = resolve_tree(family.tree(config), checkpoint, formats)
    inventory = take_inventory(tree, checkpoint)
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)

    def say(line: str) -> None:
        console.print(line, highlight=False, markup=False)

    say(f"{directory} ({family.name}, quantization {formats.method})")
    for line in (*summary(inventory, len(checkpoint.shards)), *_unused(inventory), *formats.notes):
        say(line)
    console.print(format_table(inventory), highlight=False)
    tied = family.tied(config)
    per_token, lookups = experts_per_token(checkpoint.config), lookups_per_token(checkpoint.config)
    console.print(world_table(tree, tied, tuple(rows or (1, 8)), per_token, lookups), highlight=False)
    console.print(state_table(family, config, CoreSettings.verify_rows), highlight=False)
    for line in _memory():
        say(line)
    if not digests and sums is None:
        return
    with bytes_bar("reading") as progress:
        found = digest_files(model_files(directory), progress)
    for line in digest_lines(found):
        say(line)
    wrong = [f"{digest.name} is not the file that was published" for digest in found if digest.damaged]
    if sums is not None:
        wrong += [f"{name} differs from {sums}" for name in differing(found, read_sums(sums))]
    for line in wrong:
        say(line)
    if wrong:
        raise typer.Exit(1)


def _unused(inventory: Inventory) -> Iterator[str]:
    for row in inventory.unused[:MOST_UNUSED]:
        yield f"  unused: {row.tensor} {row.format} {list(row.shape)}"
    if len(inventory.unused) > MOST_UNUSED:
        yield f"  and {len(inventory.unused) - MOST_UNUSED} more"


def format_table(inventory: Inventory) -> Table:
    """Modules, weights and stored bytes of every format, with that in which they are held when it is another."""
    from rich.table import Table

    from dgpp.cli.show import stored_and_held

    table = Table(title="formats", title_justify="left", title_style="bold", show_edge=False)
    for name in ("format", "modules", "weights", "bytes", "bits/weight"):
        table.add_column(name, justify="left" if name == "format" else "right")
    totals: dict[str, list[int]] = {}
    seen: set[tuple[str, tuple[int, ...]]] = set()
    for row in inventory.used:
        total = totals.setdefault(stored_and_held(row), [0, 0, 0])
        total[2] += row.nbytes
        if (row.path, row.places) not in seen and row.spec is not None:
            seen.add((row.path, row.places))
            total[0] += 1
            total[1] += math.prod(row.spec.shape[len(row.expert) :])
    for name, (modules, weights, nbytes) in sorted(totals.items(), key=lambda item: -item[1][2]):
        table.add_row(name, f"{modules:,}", f"{weights:,}", f"{nbytes:,}", f"{8 * nbytes / weights:.3f}")
    return table


def world_table(
    tree: SpecTree,
    tied: Mapping[str, tuple[str, TensorSpec]],
    rows: tuple[int, ...],
    per_token: int | None,
    lookups: int,
) -> Table:
    """Bytes of the weights per rank, and those read for each token of decode steps of several sizes, without drafts."""
    from rich.table import Table

    from dgpp.checkpoint.slicing import WORLDS
    from dgpp.checkpoint.spec import DRAFT
    from dgpp.checkpoint.traffic import rank_memory, weight_traffic

    table = Table(title="weights per rank", title_justify="left", title_style="bold", show_edge=False)
    table.add_column("world", justify="right")
    table.add_column("bytes held", justify="right")
    for count in rows:
        table.add_column(f"read per token, {count} {'row' if count == 1 else 'rows'}", justify="right")
    distinct: list[str] = []
    step: SpecTree = {key: node for key, node in tree.items() if key != DRAFT}
    for world in WORLDS:
        try:
            cells = [f"{rank_memory(tree, tied, world):,}"]
            traffic = [weight_traffic(step, tied, world, count, per_token, lookups) for count in rows]
        except ValueError as error:
            table.add_row(str(world), f"cannot be sliced: {error}")
            continue
        distinct = [f"{t.distinct_experts:.1f}" for t in traffic if t.distinct_experts is not None]
        table.add_row(str(world), *cells, *(f"{round(t.per_token):,}" for t in traffic))
    if distinct:
        table.add_row("", "distinct experts of a layer", *distinct)
    return table


def _memory() -> Iterator[str]:
    from dgpp.checkpoint.load import available_memory

    if (available := available_memory()) is not None:
        yield f"memory available here: {available:,} bytes"


def digest_lines(digests: list[FileDigest]) -> list[str]:
    """The lines of `sha256sum`, and one digest of all of them."""
    from dgpp.checkpoint.digests import model_digest

    return [*(f"{d.sha256}  {d.name}" for d in digests), f"model digest: {model_digest(digests)}"]
