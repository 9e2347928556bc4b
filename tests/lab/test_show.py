from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from dgpp.lab import show
from dgpp.lab.lens import lens
from dgpp.lab.model import Model

TEXT = "Plots of a tiny model"


def test_next_tokens_are_ordered_and_their_chances_add_up(embedded: Model) -> None:
    logits = embedded.forward(TEXT).logits[-1]
    every = show.next_tokens(embedded, logits, count=len(logits))
    assert sum(float(row[3]) for row in every.rows) == pytest.approx(1, abs=0.05)
    few = show.next_tokens(embedded, logits, count=3)
    assert few.rows == every.rows[:3]
    assert int(few.rows[0][0]) == logits.argmax()
    assert few._repr_html_().count("<tr>") == 4
    assert str(few).splitlines()[0].split() == ["id", "token", "logit", "probability"]


def test_tokens_are_shown_with_blanks_and_broken_characters(embedded: Model) -> None:
    ids = embedded.ids(" a\n")
    assert "".join(show.token_texts(embedded, ids)) == "␣a⏎"
    broken = next(i for i in range(300) if embedded.tokenizer.token_bytes(i) == b"\xff")
    assert show.token_texts(embedded, [broken]) == ["<ff>"]


def test_the_size_of_an_activation_is_its_root_mean_square(embedded: Model) -> None:
    forward = embedded.forward(TEXT, capture="*")
    found = show.rms_by_layer(forward, "attn.q")
    assert found.shape == (4, len(forward.ids))
    q = forward.activations["layers.2.attn.q"].astype(np.float64)
    assert found[2, 1] == pytest.approx(np.sqrt((q[1] ** 2).mean()))
    with pytest.raises(KeyError, match=r"no activation layers\.0\.attn\.nothing"):
        show.rms_by_layer(forward, "attn.nothing")


def test_plots_are_drawn(embedded: Model) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    forward = embedded.forward(TEXT, capture="*")
    seen = lens(embedded, TEXT)
    for axes in (
        show.activation_plot(embedded, forward, "out"),
        show.lens_plot(embedded, seen),
        show.distribution_plot(embedded, forward.logits[-1]),
    ):
        axes.figure.canvas.draw()
        assert len(axes.get_xticklabels()) >= len(forward.ids) or axes.patches
    table = show.lens_table(embedded, seen, last=2)
    assert len(table.rows) == 5
    assert len(table.columns) == 3


def test_matplotlib_is_not_imported_with_the_lab() -> None:
    code = "import dgpp.lab.show, sys; sys.exit('matplotlib' in sys.modules or 'treescope' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_tree_is_shown_with_treescope_and_without(embedded: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "treescope", None)
    from rich.console import Console

    console = Console(width=200)
    with console.capture() as capture:
        console.print(show.tree(embedded.weights))
    assert "down_proj" in capture.get()
    monkeypatch.undo()
    pytest.importorskip("treescope")
    shown: Any = show.tree(embedded.weights)
    assert "down_proj" in shown._repr_html_() or len(shown._repr_html_()) > 1000
