from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from dgpp.formats import Weight


@pytest.mark.parametrize(
    "numbers", [(), (0, 1, 2), (5, 6, 7), (3, 7, 11), (0, 1, 2, 4, 5, 6), (9,), (1, 2, 7, 8, 30), (2, 47)]
)
def test_every_layer_is_found_by_its_number(numbers: tuple[int, ...]) -> None:
    w = Weight({}, "bf16", (2, 2), numbers)
    place = jax.jit(w.place)
    for index, number in enumerate(numbers or range(3)):
        assert int(place(jnp.int32(number))) == index
        assert int(w.place(number)) == index
    if numbers:  # a prediction layer asks with a number that is not among them
        assert int(place(jnp.int32(0))) == 0
        assert int(place(jnp.int32(numbers[-1] + 3))) == len(numbers) - 1


def test_layers_are_part_of_what_a_step_is_compiled_for() -> None:
    sparse, dense = (Weight({"values": jnp.zeros(3)}, "bf16", (1,), numbers) for numbers in ((3, 7, 11), (0, 1, 2)))
    assert jax.tree.structure(sparse) != jax.tree.structure(dense)
