"""grouped linear: each row and expert has the bits of a linear of its own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.formats import Weight, format_named, reference
from dgpp.formats.minifloat import BFLOAT16
from dgpp.kernels import select
from dgpp.kernels.experts.reference import grouped_linear, grouped_linear_leaves

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
