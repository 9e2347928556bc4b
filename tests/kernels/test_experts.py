"""grouped linear: each row and expert has the bits of a linear of its own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.formats import Weight, format_named, reference
from dgpp.formats.minifloat import BFLOAT16
from dgpp.kernels import select
from dgpp.kernels.experts.reference import grouped_down, grouped_gated, grouped_linear, grouped_linear_leaves

ONE, TWO = jnp.int32(1), jnp.int32(2)


def experts_of(tag: str, layers: int, experts: int, n: int, k: int) -> tuple[list[list[dict]], Weight]:
    """The single matrices [layer][expert], and all of them as one weight."""
    format = format_named(tag)
    rng = np.random.default_rng(0)
    single = [
        [format.load(format.encode(rng.standard_normal((n, k)).astype(np.float32)), (n, k)) for _ in range(experts)]
        for _ in range(layers)
    ]
    names = single[0][0].keys()
    stack = {name: jnp.asarray(np.array([[e[name] for e in layer] for layer in single])) for name in names}
    return single, Weight(stack, format.loads_as, (experts, n, k))


@pytest.mark.parametrize("tag", ["bf16", "nvfp4", "gptq_int4_g128", "fp8_block128", "mixed346_3"])
def test_every_row_and_expert_has_the_bits_of_its_own_product(tag: str) -> None:
    n, k = (16, 256)
    single, w = experts_of(tag, 2, 5, n, k)
    format = format_named(w.format)
    x = np.random.default_rng(1).standard_normal((3, k)).astype(BFLOAT16)
    chosen = np.array([[0, 3], [1, 4], [2, 3]], np.int32)
    y = np.asarray(jax.jit(grouped_linear)(x, chosen, w, ONE, TWO))
    assert y.shape == (3, 2, n)
    for row in range(2):
        for j, expert in enumerate(chosen[row]):
            alone = reference.linear(x[row : row + 1], single[1][expert], (n, k), format)
            assert (y[row, j].view(np.int32) == alone[0].view(np.int32)).all()
    assert (y[2] == 0).all()  # beyond `used`


def test_down_projections_take_a_row_per_expert_and_leaves() -> None:
    n, k = (16, 256)
    single, w = experts_of("nvfp4", 1, 4, n, k)
    w = Weight({name: array[0] for name, array in w.arrays.items()}, w.format, w.shape)  # not stacked over layers
    x = np.random.default_rng(1).standard_normal((2, 2, k)).astype(BFLOAT16)
    chosen = np.array([[0, 3], [1, 2]], np.int32)
    ranges = ((0, 64), (64, 256))
    y = np.asarray(grouped_linear_leaves(jnp.asarray(x), jnp.asarray(chosen), w, ONE, TWO, ranges))
    for row in range(2):
        for j, expert in enumerate(chosen[row]):
            alone = reference.linear_leaves(x[row, j : j + 1], single[0][expert], (n, k), format_named("nvfp4"), ranges)
            assert (y[:, row, j].view(np.int32) == alone[:, 0].view(np.int32)).all()


def test_experts_of_other_ranks_give_zero_and_each_keeps_its_global_scale() -> None:
    _, w = experts_of("nvfp4", 1, 4, 16, 32)
    assert len(np.unique(np.asarray(w.arrays["global_scale"]))) == 4
    x = jnp.ones((2, 32), jnp.bfloat16)
    y = np.asarray(grouped_linear(x, jnp.array([[-1, 0], [3, 4]], jnp.int32), w, jnp.int32(0), TWO))
    assert (y[0, 0] == 0).all()
    assert (y[1, 1] == 0).all()
    assert (y[0, 1] != 0).any()
    assert (y[1, 0] != 0).any()


def opened_and_closed() -> tuple[Weight, Weight, Weight]:
    """gate, up and down of four experts, 16 wide inside and 32 outside."""
    weights = (experts_of("bf16", 1, 4, *shape)[1] for shape in ((16, 32), (16, 32), (32, 16)))
    gate, up, down = (
        Weight({"values": 0.3 * (i + 1) * w.arrays["values"]}, "bf16", w.shape) for i, w in enumerate(weights)
    )
    return gate, up, down


def test_gate_opens_up_with_the_roundings_of_the_reference_experts() -> None:
    gate, up, _ = opened_and_closed()
    x = np.random.default_rng(1).standard_normal((3, 32)).astype(BFLOAT16)
    chosen, zero = np.array([[0, 3], [1, 2], [-1, 2]], np.int32), jnp.int32(0)
    act = np.asarray(jax.jit(grouped_gated)(x, chosen, (gate, up), (zero, zero), TWO, zero))
    g, u = (np.asarray(grouped_linear(jnp.asarray(x), jnp.asarray(chosen), w, zero, TWO)) for w in (gate, up))
    g, u = g.astype(BFLOAT16).astype(np.float64), u.astype(BFLOAT16).astype(np.float32)
    wanted = (g / (1 + np.exp(-g))).astype(BFLOAT16).astype(np.float32) * u
    assert act.dtype == BFLOAT16
    assert np.abs(act.astype(np.float32) - wanted.astype(BFLOAT16).astype(np.float32)).max() < 2**-8
    assert (act == wanted.astype(BFLOAT16)).mean() > 0.98
    assert not act[2].any()
    both = Weight({"values": jnp.concatenate([gate.arrays["values"], up.arrays["values"]], 2)}, "bf16", (4, 32, 32))
    fused = np.asarray(jax.jit(grouped_gated)(x, chosen, (both,), (zero,), TWO, zero))
    assert fused.tobytes() == act.tobytes()


def test_down_adds_each_leafs_experts_in_their_order_from_zero() -> None:
    *_, down = opened_and_closed()
    act = np.random.default_rng(1).standard_normal((2, 3, 16)).astype(BFLOAT16)
    chosen, zero = np.array([[0, 1, 3], [1, 2, 9]], np.int32), jnp.int32(0)
    weights = np.array([[0.5, 0.25, 0.3], [0.1, 0.7, 0.2]], BFLOAT16)
    ranges = ((0, 8), (8, 16))
    found = np.asarray(jax.jit(grouped_down, static_argnums=6)(act, chosen, weights, down, zero, TWO, ranges, zero))
    each = np.asarray(grouped_linear_leaves(jnp.asarray(act), jnp.asarray(chosen), down, zero, TWO, ranges))
    total = np.zeros((2, 2, 32), np.float32)
    for j in range(3):
        total = total + each[:, :, j] * weights.astype(np.float32)[:, j, None]
    assert found.tobytes() == total.tobytes()
    assert not each[:, 1, 2].any()


def test_wrong_arguments_of_the_gated_and_the_down_op_are_named() -> None:
    gate, up, down = opened_and_closed()
    x, act, chosen = jnp.ones((2, 32), jnp.bfloat16), jnp.ones((2, 1, 16), jnp.bfloat16), jnp.zeros((2, 1), jnp.int32)
    with pytest.raises(
        ValueError, match=r"grouped_gated: weights must be gate and up .* not 1 layers and \[\[4, 16, 32\]"
    ):
        grouped_gated(x, chosen, (gate, up), (ONE,), TWO, ONE)
    with pytest.raises(ValueError, match=r"not 2 layers and \[\[4, 16, 32\], \[4, 32, 16\]\]"):
        grouped_gated(x, chosen, (gate, down), (ONE, ONE), TWO, ONE)
    with pytest.raises(ValueError, match=r"grouped_down: weights must be floating point \[2, 1\]"):
        grouped_down(act, chosen, jnp.ones((2, 2)), down, ONE, TWO, ((0, 16),), ONE)


def test_wrong_arguments_are_named() -> None:
    _, w = experts_of("nvfp4", 1, 2, 16, 32)
    x, chosen = jnp.ones((2, 32), jnp.bfloat16), jnp.zeros((2, 1), jnp.int32)
    with pytest.raises(ValueError, match=r"grouped_linear: w must have the logical shape \[E, N, K\], not \[16, 32\]"):
        grouped_linear(x, chosen, Weight(w.arrays, w.format, (16, 32)), ONE, TWO)
    with pytest.raises(ValueError, match=r"grouped_linear: x must be bfloat16 \[2, 32\] or \[2, 1, 32\]"):
        grouped_linear(x[:, :16], chosen, w, ONE, TWO)
    with pytest.raises(ValueError, match=r"grouped_linear: experts must be int32 \[R, E'\]"):
        grouped_linear(x, chosen[:, 0], w, ONE, TWO)
    with pytest.raises(ValueError, match="grouped_linear: used must be an int32 scalar"):
        grouped_linear(x, chosen, w, ONE, jnp.float32(2))
    with pytest.raises(ValueError, match=r"grouped_linear_leaves: ranges has \(0, 64\)"):
        grouped_linear_leaves(x, chosen, w, ONE, TWO, ((0, 64),))


def test_the_native_kernels_leave_other_formats_to_the_reference() -> None:
    single, w = experts_of("int4_g64", 1, 1, 16, 64)
    one = Weight({name: jnp.asarray(array) for name, array in single[0][0].items()}, w.format, (16, 64))
    x = np.random.default_rng(1).standard_normal((2, 64)).astype(BFLOAT16)
    expected = reference.linear(x, single[0][0], (16, 64), format_named("int4_g64"))
    for name in ("reference", "cpu"):
        kernels = select(name)
        y = np.asarray(jax.jit(kernels.linear)(x, one, jnp.int32(0), TWO))
        assert (y.view(np.int32) == expected.view(np.int32)).all()
    assert kernels.grouped_linear is grouped_linear
