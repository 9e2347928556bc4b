"""`dgpp show`: every tensor of a model as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from dgpp.checkpoint.inventory import Inventory, Row
    from dgpp.checkpoint.spec import Leaves

PIPE_WIDTH = 240
"""Columns when the output is no terminal, so that a name is never cut."""


def show(
    model: Annotated[str | None, typer.Argument(help="Directory or hub id; the embedded model without one.")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.")] = None,
    stacked: Annotated[bool, typer.Option("--stacked", help="One row per kind of tensor instead of one each.")] = False,
) -> None:
    """Prints every tensor with its place in the weight tree, name, shape, format, bytes and leaf boundaries."""
    from rich.console import Console

    from dgpp.checkpoint.hub import resolve
    from dgpp.checkpoint.inventory import take_inventory
    from dgpp.checkpoint.quantization import resolve_formats, resolve_tree
    from dgpp.checkpoint.reader import Checkpoint
    from dgpp.models import family_of

    directory = resolve(model, revision)
    checkpoint = Checkpoint.open(directory)
    family = family_of(checkpoint.config)
    table = resolve_formats(checkpoint)
    tree = resolve_tree(family.tree(family.config(checkpoint.config)), checkpoint, table)
    inventory = take_inventory(tree, checkpoint)
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    console.print(tensor_table(inventory, directory, family.name, stacked), highlight=False)
    for line in (*summary(inventory, len(checkpoint.shards)), *(f"note: {note}" for note in table.notes)):
        console.print(line, highlight=False, markup=False)


def tensor_table(inventory: Inventory, directory: Path, family: str, stacked: bool = False) -> Table:
    """The table of all tensors, used ones in the order of the weight tree, then the ignored and the unused.

    `stacked` prints the tensors of all layers as one row with their number in front of the shape.
    """
    from rich.table import Table

    table = Table(title=f"{directory} ({family})", title_justify="left", title_style="bold", show_edge=False)
    for name in ("module", "tensor", "shape", "format"):
        table.add_column(name, overflow="fold")
    table.add_column("bytes", justify="right")
    table.add_column("leaf boundaries", overflow="fold")
    for cells in _stacked_rows(inventory.used) if stacked else map(_cells, inventory.used):
        table.add_row(*cells)
    for cells in _stacked_ignored(inventory.ignored) if stacked else map(_ignored, inventory.ignored):
        table.add_row(*cells, style="dim")
    for row in inventory.unused:
        table.add_row("(unused)", *_cells(row)[1:], style="dim")
    return table


def _cells(row: Row) -> tuple[str, ...]:
    module = row.path + "".join(f"[{place}]" for place in row.places)
    leaves = leaf_boundaries(row.spec.bands, row.spec.axes) if row.spec else ""
    return module, row.tensor, _shape(row.shape), stored_and_held(row), f"{row.nbytes:,}", leaves


def _stacked_rows(rows: tuple[Row, ...]) -> Iterator[tuple[str, ...]]:
    """One row per path and array of the stored form."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.path, row.tensor.rpartition(".")[2]), []).append(row)
    for (path, suffix), members in groups.items():
        first = members[0]
        _, _, shape, format, _, leaves = _cells(first)
        name = first.tensor
        if first.spec is not None and (first.places or len(members) > 1):
            bare = first.spec.source.endswith(f".{suffix}")
            name, shape = first.spec.source if bare else f"{first.spec.source}.{suffix}", f"{len(members)} × {shape}"
        yield path, name, shape, format, f"{sum(row.nbytes for row in members):,}", leaves


def stored_and_held(row: Row) -> str:
    """The format of a tensor, and that in which its weight is held when it is encoded anew: "bf16, held as bf12"."""
    return f"{row.format}, held as {row.spec.resident}" if row.spec and row.spec.resident else row.format


def _ignored(row: Row) -> tuple[str, ...]:
    return f"({row.note})", *_cells(row)[1:]


def _stacked_ignored(rows: tuple[Row, ...]) -> Iterator[tuple[str, ...]]:
    """One row per last part of a name and reason."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.note, row.tensor.rpartition(".")[2], row.format), []).append(row)
    for (note, suffix, format), members in groups.items():
        yield (
            f"({note})",
            f"*.{suffix}",
            f"{len(members)} tensors",
            format,
            f"{sum(row.nbytes for row in members):,}",
            "",
        )


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def leaf_boundaries(bands: tuple[Leaves, ...], axes: tuple[str, ...]) -> str:
    """Where the four leaves of each band lie: "mlp 0|40|80|120|160" for a partition, the four ranges where leaves
    share parts."""
    if not bands:
        return ""
    return f"{axes[bands[0].axis]} " + ", ".join(map(_band, bands))


def _band(leaves: Leaves) -> str:
    if leaves.partition:
        return "|".join(map(str, [leaves.ranges[0][0], *(stop for _, stop in leaves.ranges)]))
    return " ".join(f"{start}:{stop}" for start, stop in leaves.ranges)


def summary(inventory: Inventory, shards: int) -> list[str]:
    """The totals: tensors, bytes and parameters by format, and what is left unused or unlisted."""
    used = inventory.used
    formats = Counter[str]()
    for row in used:
        formats[row.format] += row.nbytes
    by_format = ", ".join(f"{name} {nbytes:,}" for name, nbytes in formats.most_common())
    lines = [
        f"total: {len(used)} tensors, {inventory.used_bytes:,} bytes ({inventory.used_bytes / 1e9:.3f} GB) "
        f"in {shards} {'file' if shards == 1 else 'files'}; bytes by format: {by_format}"
    ]
    if inventory.ignored:
        lines.append(f"ignored: {len(inventory.ignored)} tensors that no value depends on")
    if inventory.unused:
        lines.append(f"unused: {len(inventory.unused)} tensors, {inventory.unused_bytes:,} bytes")
    if inventory.unindexed:
        names = ", ".join(inventory.unindexed[:5]) + (", ..." if len(inventory.unindexed) > 5 else "")
        lines.append(f"not in the checkpoint's index: {len(inventory.unindexed)} tensors ({names})")
    return lines
