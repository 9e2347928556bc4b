"""route: the choice of experts and their weights, against float64 and NumPy's stable sort."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.formats.minifloat import BFLOAT16
from dgpp.kernels.route.reference import route

ZERO = np.int32(0)


@partial(jax.jit, static_argnums=1)
def choose(logits: jax.Array, k: int, zero: jax.Array) -> tuple[jax.Array, jax.Array]:
    return route(jnp.asarray(logits, jnp.float32)[None], k, zero)


def test_trap_tie_order_is_the_lower_id_first() -> None:
    logits = np.zeros((3, 16), np.float32)
    logits[1, [3, 9, 12]] = 1, 1, 2
    logits[2] = -np.arange(16) // 4
    experts, weights = choose(logits, 2, ZERO)
    assert experts.tolist() == [[0, 1], [3, 12], [0, 1]]
    assert weights[0].tolist() == [0.5, 0.5]


def test_chosen_experts_ascend_and_weights_add_up_to_one() -> None:
    logits = np.random.default_rng(0).standard_normal((50, 64)).astype(np.float32) * 3
    experts, weights = (np.asarray(x) for x in choose(logits, 10, ZERO))
    assert (np.diff(experts, axis=1) > 0).all()
    p = np.exp(logits.astype(BFLOAT16).astype(np.float64))
    best = np.sort(np.argsort(-p, axis=1)[:, :10], axis=1)
    assert (experts == best).all()
    held_p = np.take_along_axis(p, best, 1)
    assert np.abs(weights.astype(np.float64) - held_p / held_p.sum(1, keepdims=True)).max() < 2**-9
    assert weights.dtype == BFLOAT16


def test_trap_logits_are_rounded_before_the_choice() -> None:
    """Two logits that are apart only in float32 are a tie, and the lower id wins."""
    logits = np.zeros((1, 8), np.float32)
    logits[0, 2], logits[0, 5] = 3.0, 3.001
    assert choose(logits, 1, ZERO)[0].tolist() == [[2]]


def test_the_parts_of_the_product_are_added_in_their_order() -> None:
    parts = np.random.default_rng(1).standard_normal((3, 4, 32)).astype(np.float32)
    whole = (parts[0] + parts[1]) + parts[2]
    for a, b in zip(route(jnp.asarray(parts), 3, ZERO), choose(whole, 3, ZERO), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_a_logit_that_is_no_number_shows_in_the_weights_of_its_row_alone() -> None:
    logits = np.random.default_rng(2).standard_normal((3, 16)).astype(np.float32)
    logits[1, 7] = np.nan
    _, weights = choose(logits, 4, ZERO)
    assert np.isnan(np.asarray(weights, np.float32)).any(1).tolist() == [False, True, False]


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"route: parts must be float32 \[P, R, E\], not int32"):
        route(np.zeros((1, 2, 4), np.int32), 2, ZERO)
    with pytest.raises(ValueError, match="route: k = 5 must be from 1 to E = 4"):
        route(np.zeros((1, 2, 4), np.float32), 5, ZERO)
