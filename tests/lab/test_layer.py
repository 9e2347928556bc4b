from __future__ import annotations

import jax
import numpy as np
import pytest

from dgpp.formats import Weight
from dgpp.lab.layer import lone_layer
from dgpp.lab.model import Model, load
from tests.lab.conftest import LAYOUT
from tests.models.qwen import LARGE, MODELS, directory_of, slow_if


def test_layers_by_hand_give_the_bits_of_the_whole_step(embedded: Model) -> None:
    ids = tuple(range(40, 60))  # crosses a border of pages
    served = embedded.forward(ids, capture=("embed", "layers.*.out"))
    layer = embedded.layer(0)
    rows = layer.rows(ids)
    h = layer.embed(rows)
    assert np.asarray(h).tobytes() == served.activations["embed"].tobytes()
    for index in range(embedded.config.layers):
        layer = embedded.layer(index)
        h = layer.mixer(h, rows)
        h = layer.mlp(h, rows)
        assert np.asarray(h).tobytes() == served.activations[f"layers.{index}.out"].tobytes(), index
    assert embedded.unembed(h).tobytes() == served.logits.tobytes()


@pytest.mark.parametrize(("family", "release"), [slow_if(made[0] == LARGE, *made) for made in MODELS])
def test_layers_of_every_kind_by_hand_and_read_alone(family: str, release: str) -> None:
    directory = directory_of(family, release)
    model = load(str(directory), slots=1, pool_tokens=64, page_tokens=16, row_families=(32,))
    ids = tuple(range(40, 65))
    served = model.forward(ids, capture=("embed", "layers.*.out"))
    rows = model.layer(0).rows(ids)
    h = model.layer(0).embed(rows)
    for index in range(model.config.layers):
        if index not in getattr(model.config, "ple_layers", ()):  # what is read of a table needs the whole step
            h = model.layer(index)(h, rows)
            assert np.asarray(h).tobytes() == served.activations[f"layers.{index}.out"].tobytes(), index
        h = served.activations[f"layers.{index}.out"]
    last = model.config.layers - 1
    alone = lone_layer(directory, last, page_tokens=16)
    assert all(stack.numbers == (last,) for stack in jax.tree.leaves(alone.weights, is_leaf=is_weight))
    before = served.activations[f"layers.{last - 1}.out"]
    np.testing.assert_array_equal(alone(before, alone.rows(ids)), served.activations[f"layers.{last}.out"])
    with pytest.raises(KeyError, match=f"a layer of {family} has .*mixer, mlp, but no 'attention'"):
        alone.part("attention", before, alone.rows(ids))
    with pytest.raises(IndexError, match="layer 4 is not one of the 4 layers"):
        lone_layer(directory, 4)


def is_weight(node: object) -> bool:
    return isinstance(node, Weight)


def test_a_layer_that_is_not_there_or_not_here_is_refused(embedded: Model) -> None:
    assert embedded.layer(-1).index == 3
    with pytest.raises(IndexError, match="layer 4 is not one of the 4 layers"):
        embedded.layer(4)
    spread = load(world=2, **LAYOUT)
    with pytest.raises(ValueError, match="world of 1"):
        spread.layer(0)
    with pytest.raises(ValueError, match="world of 1"):
        spread.unembed  # noqa: B018
