"""Tables and plots of what a forward computed. Matplotlib is imported when a plot is drawn, and not before.

Tables are lists of rows that print well, with `table` to make HTML of them; plots return a matplotlib axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from dgpp.lab.lens import Lens, log_softmax
from dgpp.lab.model import Forward, Model

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Table:
    """Named columns and rows of text, as text in a terminal and as HTML in a notebook."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        lines = [self.columns, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        )

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


@dataclass(frozen=True)
class Html:
    """A piece of HTML that notebooks show."""

    html: str

    def _repr_html_(self) -> str:
        return self.html


def token_texts(model: Model, ids: Iterable[int]) -> list[str]:
    """Each token's text with blanks made visible; a byte that is no character alone is shown in hexadecimal."""
    texts = []
    for token in ids:
        data = model.tokenizer.token_bytes(int(token))
        try:
            text = data.decode("utf-8").replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")
        except UnicodeDecodeError:
            text = "<" + data.hex() + ">"
        texts.append(text if text.isprintable() else ascii(text)[1:-1])
    return texts


def next_tokens(model: Model, logits: np.ndarray, count: int = 10) -> Table:
    """The likeliest tokens after one position, `logits` float32 [V]: id, text, logit and probability."""
    order = np.argsort(-logits, kind="stable")[:count]
    chances = np.exp(log_softmax(logits)[order])
    rows = zip(order, token_texts(model, order), logits[order], chances, strict=True)
    return Table(
        ("id", "token", "logit", "probability"),
        tuple((str(token), text, f"{logit:.6g}", f"{chance:.4f}") for token, text, logit, chance in rows),
    )


def lens_table(model: Model, lens: Lens, last: int = 8) -> Table:
    """What each stage would say next: one row a stage, one column for each of the last tokens of the prompt."""
    first = max(0, len(lens.ids) - last)
    rows = [(stage, *token_texts(model, lens.top[i, first:, 0])) for i, stage in enumerate(lens.stages)]
    return Table(("after", *token_texts(model, lens.ids[first:])), tuple(rows))


def rms_by_layer(forward: Forward, site: str) -> np.ndarray:
    """Root mean square of "layers.*.<site>" over everything but layer and token: float64 [L, T].

    Raises KeyError when the forward did not capture the site.
    """
    rows: list[np.ndarray] = []
    while (name := f"layers.{len(rows)}.{site}") in forward.activations:
        wide = forward.activations[name].astype(np.float64).reshape(len(forward.ids), -1)
        rows.append(np.sqrt((wide * wide).mean(axis=1)))
    if not rows:
        raise KeyError(f"no activation layers.0.{site}; captured are {', '.join(forward.activations) or 'none'}")
    return np.stack(rows)


def heatmap(values: np.ndarray, rows: Sequence[str], columns: Sequence[str], title: str = "", ax: Any = None) -> Axes:
    """A plot of `values` [len(rows), len(columns)]."""
    ax = _axes(ax)
    image = ax.imshow(values, aspect="auto")
    ax.set_xticks(range(len(columns)), columns, rotation=90)
    ax.set_yticks(range(len(rows)), rows)
    ax.set_title(title)
    ax.figure.colorbar(image, ax=ax)
    return ax


def activation_plot(model: Model, forward: Forward, site: str, ax: Any = None) -> Axes:
    """The size of an activation, by layer and token."""
    values = rms_by_layer(forward, site)
    layers = [f"layer {layer}" for layer in range(len(values))]
    return heatmap(values, layers, token_texts(model, forward.ids), f"root mean square of {site}", ax)


def lens_plot(model: Model, lens: Lens, ax: Any = None) -> Axes:
    """How likely each stage thinks the token is that the last layer will choose."""
    title = "log-probability of the model's own choice"
    return heatmap(lens.final, list(lens.stages), token_texts(model, lens.ids), title, ax)


def distribution_plot(model: Model, logits: np.ndarray, count: int = 10, ax: Any = None) -> Axes:
    """The probabilities of the likeliest tokens after one position, `logits` float32 [V]."""
    ax = _axes(ax)
    order = np.argsort(-logits, kind="stable")[:count]
    ax.bar(range(count), np.exp(log_softmax(logits)[order]))
    ax.set_xticks(range(count), token_texts(model, order), rotation=90)
    ax.set_ylabel("probability")
    return ax


def tree(value: Any) -> Any:
    """`value` (say `m.weights`) as a tree that can be opened: by treescope where it is installed, else by rich."""
    try:
        import treescope
    except ImportError:
        from rich.pretty import Pretty

        return Pretty(value, max_length=32)
    return Html(treescope.render_to_html(value))


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(7, 3), layout="constrained")[1]
