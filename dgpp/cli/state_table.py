"""The table of what a model remembers of a sequence, by kind and for worlds of 1, 2 and 4: part of `dgpp audit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from dgpp.models import Family


def state_table(family: Family, config: Any, verify_rows: int) -> Table:
    """Bytes per token of the cache and per slot, of one rank, for each part of the state; those of the prediction layer
    are named "mtp.…". A slot has rings for `verify_rows` rows of one verify."""
    from rich.table import Table

    from dgpp.checkpoint.slicing import WORLDS
    from dgpp.models.state import StateSpecs

    def specs(world: int) -> StateSpecs:
        draft = family.draft.state(config, world) if family.draft and family.draft.abstract(config) else {}
        return {**family.state(config, world), **{f"mtp.{name}": spec for name, spec in draft.items()}}

    table = Table(title="state per rank", title_justify="left", title_style="bold", show_edge=False)
    table.add_column("kind")
    for unit in ("token", "slot"):
        for world in WORLDS:
            table.add_column(f"per {unit}, world {world}", justify="right")
    worlds = {world: specs(world) for world in WORLDS}
    totals = [0] * 2 * len(WORLDS)
    for name in worlds[1]:
        row = [worlds[world][name].bytes_per_token for world in WORLDS]
        row += [worlds[world][name].bytes_per_slot(verify_rows) for world in WORLDS]
        totals = [total + cell for total, cell in zip(totals, row, strict=True)]
        table.add_row(name, *(f"{cell:,}" if cell else "" for cell in row))
    table.add_row("all", *(f"{total:,}" if total else "" for total in totals))
    return table
