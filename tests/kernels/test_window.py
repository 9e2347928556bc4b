from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.kernels.rows import Phase, Rows
from dgpp.kernels.window import causal_conv, window
from tests.layers.segments import BF16, SLOTS, Segment, gaussian, rows_of

WIDTH, DEPTH, BACK = 5, 7, (3, 2, 1)
LAYER = np.int32(1)


def empty(dtype: Any = BF16) -> jax.Array:
    return jnp.full((2, SLOTS, DEPTH, WIDTH), 99, dtype)


run = jax.jit(lambda x, ring, rows: window(x, ring, jnp.int32(1), rows, BACK))


def expected(x: np.ndarray, offset: int) -> np.ndarray:
    """Rows of one text that starts at position 0, `offset` earlier."""
    return np.concatenate([np.zeros((offset, WIDTH), x.dtype), x])[: len(x)]


@pytest.mark.parametrize("cuts", [(), (1,), (2, 3, 4), (6,), (5, 13), tuple(range(1, 20))])
def test_a_text_may_be_cut_inside_a_window(cuts: tuple[int, ...]) -> None:
    x = gaussian(np.random.default_rng(0), 20, WIDTH)
    ring, parts = empty(), []
    for start, stop in zip((0, *cuts), (*cuts, 20), strict=True):
        rows = rows_of(Segment(1, start, stop - start), padding=2)
        found, ring = run(np.pad(x[start:stop], ((0, 2), (0, 0))), ring, rows)
        parts.append([np.asarray(part)[: stop - start] for part in found])
    for i, offset in enumerate(BACK):
        assert (np.concatenate([part[i] for part in parts]) == expected(x, offset)).all()
    for position in range(20 - DEPTH, 20):
        assert (np.asarray(ring)[1, 1, position % DEPTH] == x[position]).all()
    assert (np.asarray(ring)[1, [0, 2]] == 99).all()
    assert (np.asarray(ring)[0] == 99).all()


def test_slots_do_not_see_each_other() -> None:
    rng = np.random.default_rng(1)
    a, b = gaussian(rng, 9, WIDTH), gaussian(rng, 4, WIDTH)
    _, ring = run(a[:6], empty(), rows_of(Segment(2, 0, 6)))
    found, _ = run(np.concatenate([b, a[6:]]), ring, rows_of(Segment(0, 0, 4), Segment(2, 6, 3)))
    for offset, part in zip(BACK, found, strict=True):
        assert (np.asarray(part)[:4] == expected(b, offset)).all()
        assert (np.asarray(part)[4:] == expected(a, offset)[6:]).all()


@pytest.mark.parametrize("accepted", [1, 2, 3, 4])
def test_a_rollback_after_a_verify_needs_no_repair(accepted: int) -> None:
    rng = np.random.default_rng(2)
    x, wrong = gaussian(rng, 14, WIDTH), gaussian(rng, 4, WIDTH)
    _, ring = run(x[:7], empty(), rows_of(Segment(1, 0, 7)))
    drafted = np.concatenate([x[7 : 7 + accepted], wrong[accepted:]])
    _, ring = run(drafted, ring, rows_of(Segment(1, 7, 4, Phase.VERIFY)))
    at = 7 + accepted
    found, _ = run(x[at:], ring, rows_of(Segment(1, at, 14 - at, Phase.VERIFY)))
    for offset, part in zip(BACK, found, strict=True):
        assert (np.asarray(part) == expected(x, offset)[at:]).all()


def test_rows_of_any_shape_and_type() -> None:
    tokens = jnp.arange(10, 16, dtype=jnp.int32)
    ring = jnp.full((1, SLOTS, 4), 7, jnp.int32)
    found, ring = window(tokens, ring, jnp.int32(0), rows_of(Segment(0, 0, 6)), (2, 1))
    assert found[0].tolist() == [0, 0, 10, 11, 12, 13]
    assert found[1].tolist() == [0, 10, 11, 12, 13, 14]
    assert ring[0, 0].tolist() == [14, 15, 12, 13]


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_a_ring_is_updated_where_it_lies_in_a_scan(dtype: Any) -> None:
    """No copy of the rings of all layers is made, neither once nor per layer."""
    shape, rows = (16, SLOTS, DEPTH, 2048), rows_of(Segment(1, 5, 4), Segment(0, 9, 4, Phase.VERIFY))

    def step(ring: jax.Array, x: jax.Array, rows: Rows) -> Any:
        def body(carry: Any, layer: jax.Array) -> Any:
            ring, x = carry
            found, ring = window(x, ring, layer, rows, BACK)
            mixed = causal_conv([*found, x], jnp.ones((2048, 1, 4)), rows.zero)
            return (ring, mixed.astype(dtype)), None

        return jax.lax.scan(body, (ring, x), jnp.arange(16, dtype=jnp.int32))[0]

    ring, x = jnp.zeros(shape, dtype), jnp.ones((8, 2048), dtype)
    compiled = jax.jit(step, donate_argnums=0).lower(ring, x, rows).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < ring.nbytes // 2
    assert f"[{','.join(map(str, shape))}]{{3,2,1,0}} copy(" not in compiled.as_text()


def test_an_offset_that_the_ring_does_not_reach_is_refused() -> None:
    with pytest.raises(ValueError, match=r"offsets \(8,\) are not all within the ring's depth 7"):
        window(jnp.zeros((1, WIDTH)), empty(), jnp.int32(0), rows_of(Segment(0, 0, 1)), (8,))


def test_conv_tap_order_is_oldest_first() -> None:
    rng = np.random.default_rng(3)
    x, weight = gaussian(rng, 12, WIDTH), gaussian(rng, WIDTH, 1, 4)
    found, _ = run(x, empty(), rows_of(Segment(0, 0, 12)))
    y = np.asarray(jax.jit(causal_conv)([*found, x], weight, np.int32(0)))
    exact = np.zeros((12, WIDTH))
    for t in range(12):
        for k in range(4):
            if t - 3 + k >= 0:
                exact[t] += weight[:, 0, k].astype(np.float64) * x[t - 3 + k].astype(np.float64)
    assert np.abs(y - exact).max() < 1e-5
    order = np.zeros(WIDTH, np.float32)
    for k in range(4):
        order = order + weight[:, 0, k].astype(np.float32) * x[8 + k].astype(np.float32)
    assert (y[11] == order).all()
