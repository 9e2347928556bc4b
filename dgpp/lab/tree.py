"""The tree of a model's weights as a table: for terminals through rich, for notebooks as HTML."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from dgpp.checkpoint.spec import Leaves, flatten
from dgpp.formats import Weight

if TYPE_CHECKING:
    from rich.table import Table

    from dgpp.lab.model import Model

COLUMNS = ("path", "name in the checkpoint", "shape", "format", "bytes", "cut into leaves")


def weight_table(model: Model) -> Table:
    """One row for each stack of tensors (those of all layers are one, or one for each format), and the sum of bytes."""
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
    specs = dict(flatten(model.tree))
    for keys, weight in _weights(model.weights):
        spec = specs[".".join(keys)]
        stacked = f"{spec.layers} layers × " if spec.layers else ""
        named = " × ".join(f"{size} {axis}" for size, axis in zip(spec.shape, spec.axes, strict=True))
        leaves = _leaves(spec.bands, spec.axes)
        yield ".".join(keys), spec.source, stacked + named, weight.format, f"{_nbytes(weight):,}", leaves


def _weights(node: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Weight]]:
    """(keys, weight) of every stack, in the order of the tree."""
    if isinstance(node, Weight):
        yield keys, node
        return
    for key, child in node.items():
        yield from _weights(child, (*keys, key))


def _total(model: Model) -> int:
    return sum(_nbytes(weight) for _, weight in _weights(model.weights))


def _nbytes(weight: Weight) -> int:
    return sum(array.nbytes for array in weight.arrays.values())


def _leaves(bands: tuple[Leaves, ...], axes: tuple[str, ...]) -> str:
    if not bands:
        return ""
    ranges = (" ".join(f"{start}:{stop}" for start, stop in band.ranges) for band in bands)
    return f"{axes[bands[0].axis]} " + ", ".join(ranges)
