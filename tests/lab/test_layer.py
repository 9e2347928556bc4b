from __future__ import annotations

import numpy as np
import pytest

from dgpp.lab.model import Model, load
from tests.lab.conftest import LAYOUT


def test_layers_by_hand_give_the_bits_of_the_whole_step(embedded: Model) -> None:
    ids = tuple(range(40, 60))  # crosses a border of pages
    served = embedded.forward(ids, capture=("embed", "layers.*.out"))
    layer = embedded.layer(0)
    rows = layer.rows(ids)
    h = layer.embed(rows)
    assert np.asarray(h).tobytes() == served.activations["embed"].tobytes()
    for index in range(embedded.config.layers):
        layer = embedded.layer(index)
        h = layer.attention(h, rows)
        h = layer.mlp(h, rows)
        assert np.asarray(h).tobytes() == served.activations[f"layers.{index}.out"].tobytes(), index
    assert embedded.unembed(h).tobytes() == served.logits.tobytes()


def test_a_layer_that_is_not_there_or_not_here_is_refused(embedded: Model) -> None:
    assert embedded.layer(-1).index == 3
    with pytest.raises(IndexError, match="layer 4 is not one of the 4 layers"):
        embedded.layer(4)
    spread = load(world=2, **LAYOUT)
    with pytest.raises(ValueError, match="world of 1"):
        spread.layer(0)
    with pytest.raises(ValueError, match="world of 1"):
        spread.unembed  # noqa: B018
