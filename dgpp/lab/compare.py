"""Two runs side by side: where they first differ, and by how much.

    compare(m.forward(text, capture="*"), other.forward(text, capture="*"))

Differences are counted in units in the last place (ulps) of the stored type and judged in float64.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

if TYPE_CHECKING:
    from rich.table import Table

    from dgpp.lab.model import Forward

INTEGERS = {
    np.dtype(np.float32): np.int32,
    np.dtype(np.float64): np.int64,
    np.dtype(ml_dtypes.bfloat16): np.int16,
    np.dtype(np.int32): np.int32,  # chosen experts and blocks
}


@dataclass(frozen=True)
class Difference:
    """How two arrays of one shape differ. NaN beside NaN of the same bits is equal."""

    name: str
    size: int
    different: int  # values whose bits differ
    ulps: int  # the largest distance, in steps of the stored type
    relative: float  # |a - b| / |b|, as Euclidean norms of the whole arrays in float64
    first: tuple[int, ...] | None  # index of the first value that differs
    values: tuple[float, float] | None  # the two values with the largest absolute difference
    note: str = ""  # why the arrays could not be compared

    @property
    def equal(self) -> bool:
        """Whether every bit is the same."""
        return not self.different and not self.note


@dataclass(frozen=True)
class Comparison:
    """The differences of all activations in the order in which a forward computes them, and of the logits at last."""

    differences: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        """Whether there was something to compare, and all of it has the same bits."""
        return bool(self.differences) and all(one.equal for one in self.differences)

    @property
    def first(self) -> Difference | None:
        """The first that differs."""
        return next((one for one in self.differences if not one.equal), None)

    def table(self) -> Table:
        """A table for terminals."""
        from rich.table import Table

        table = Table(title=str(self), title_justify="left", show_edge=False)
        for name in COLUMNS:
            table.add_column(name, justify="left" if name == "activation" else "right")
        for one in self.differences:
            table.add_row(*_cells(one), style="" if one.equal else "bold")
        return table

    def __str__(self) -> str:
        compared = f"{len(self.differences)} arrays"
        return (
            f"{compared}, all equal bit for bit" if self.first is None else f"{compared}, first {describe(self.first)}"
        )

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in COLUMNS)
        body = "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in _cells(one))}</tr>" for one in self.differences)
        return f"<p>{escape(str(self))}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


COLUMNS = ("activation", "values", "different", "ulps", "relative")


def compare(a: Forward, b: Forward) -> Comparison:
    """Every activation that both runs captured, and the logits. Raises ValueError when their tokens differ."""
    if a.ids != b.ids:
        raise ValueError(f"the runs are of different tokens ({len(a.ids)} and {len(b.ids)})")
    names = in_order(name for name in a.activations if name in b.activations)
    differences = [difference(name, a.activations[name], b.activations[name]) for name in names]
    return Comparison((*differences, difference("logits", a.logits, b.logits)))


def difference(name: str, a: np.ndarray, b: np.ndarray) -> Difference:
    """How `a` differs from `b`. Arrays of other shape or type are not compared, which counts as a difference."""
    if a.shape != b.shape or a.dtype != b.dtype:
        note = f"{a.dtype} {list(a.shape)} beside {b.dtype} {list(b.shape)}"
        return Difference(name, max(a.size, b.size), 0, 0, float("nan"), None, None, note)
    unequal = _bits(a) != _bits(b)
    if not unequal.any():
        return Difference(name, a.size, 0, 0, 0.0, None, None)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    gap = np.abs(wide_a - wide_b)
    scale = float(np.linalg.norm(wide_b))
    at = np.unravel_index(int(np.argmax(np.where(np.isnan(gap), np.inf, gap))), a.shape)
    first = tuple(int(i) for i in np.argwhere(unequal)[0])
    values = (float(wide_a[at]), float(wide_b[at]))
    relative = float(np.linalg.norm(gap)) / scale if scale else float("inf")
    return Difference(name, a.size, int(unequal.sum()), int(ulps(a, b).max()), relative, first, values)


def ulps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Steps between two arrays of one type, int64: 0 for equal values (also -0 and +0), 1 for neighbours."""
    lines = []
    for x in (a, b):
        bits = _bits(x).astype(np.int64)
        lowest = np.int64(np.iinfo(_bits(x).dtype).min)
        signed = x.dtype == np.int32  # floats hold a sign and a magnitude
        lines.append(bits if signed else np.where(bits < 0, lowest - bits, bits))
    return np.abs(lines[0] - lines[1])


def in_order(names: Iterable[str]) -> list[str]:
    """Names of activations in the order of a forward: before the layers, layer by layer, after them."""

    def stage(item: tuple[int, str]) -> tuple[int, int]:
        index, name = item
        layer = re.match(r"layers\.(\d+)\.", name)
        return (int(layer[1]), index) if layer else (-1 if name == "embed" else 2**31, index)

    return [name for _, name in sorted(enumerate(names), key=stage)]


def describe(one: Difference) -> str:
    """One line: what differs and how far."""
    if one.note:
        return f"{one.name}: cannot be compared, {one.note}"
    if one.values is None:
        return f"{one.name}: equal"
    return (
        f"{one.name}: {one.different} of {one.size} values differ, first at {list(one.first or ())}; up to {one.ulps} "
        f"ulps, {one.values[0]:.9g} beside {one.values[1]:.9g}; relative {one.relative:.3g}"
    )


def _cells(one: Difference) -> Sequence[str]:
    if one.note:
        return one.name, str(one.size), one.note, "", ""
    return one.name, str(one.size), str(one.different), str(one.ulps), f"{one.relative:.3g}"


def _bits(x: np.ndarray) -> Any:
    if x.dtype not in INTEGERS:
        raise ValueError(f"cannot compare {x.dtype}; known are {', '.join(str(dtype) for dtype in INTEGERS)}")
    return np.ascontiguousarray(x).view(INTEGERS[x.dtype])
