"""The tree of a model's weights as a table: for terminals through rich, for notebooks as HTML."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from dgpp.checkpoint.spec import Leaves, TensorSpec, flatten

if TYPE_CHECKING:
    from rich.table import Table

    from dgpp.lab.model import Model

COLUMNS = ("path", "name in the checkpoint", "shape", "format", "bytes", "cut into leaves")


def weight_table(model: Model) -> Table:
    """One row for each tensor, those of all layers together, with the bytes of all of them at the end."""
    from rich.table import Table

    table = Table(title=repr(model), title_justify="left", show_edge=False)
    for name in COLUMNS:
        table.add_column(name, justify="right" if name == "bytes" else "left", overflow="fold")
    for cells in _rows(model):
        table.add_row(*cells)
    table.add_row("", "", "", "", f"{_total(model):,}", "", style="bold")
    return table


def weight_html(model: Model) -> str:
    """The same table in HTML without style sheets or scripts."""
    head = "".join(f"<th>{escape(name)}</th>" for name in COLUMNS)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>" for cells in _rows(model))
    total = f"<tr><td></td><td></td><td></td><td></td><td><b>{_total(model):,}</b></td><td></td></tr>"
    return f"<p>{escape(repr(model))}</p><table><thead><tr>{head}</tr></thead><tbody>{body}{total}</tbody></table>"


def _rows(model: Model) -> Iterator[tuple[str, ...]]:
    for path, spec in flatten(model.family.abstract(model.config)):
        yield path, spec.source, _shape(spec), spec.format, f"{spec.nbytes:,}", _leaves(spec.leaves, spec.axes)


def _total(model: Model) -> int:
    return sum(spec.nbytes for _, spec in flatten(model.family.abstract(model.config)))


def _shape(spec: TensorSpec) -> str:
    named = " × ".join(f"{size} {axis}" for size, axis in zip(spec.shape, spec.axes, strict=True))
    return f"{spec.layers} layers × {named}" if spec.layers else named


def _leaves(leaves: Leaves | None, axes: tuple[str, ...]) -> str:
    if leaves is None:
        return ""
    return f"{axes[leaves.axis]} " + " ".join(f"{start}:{stop}" for start, stop in leaves.ranges)
