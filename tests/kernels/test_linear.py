from __future__ import annotations

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from jax.sharding import AxisType, PartitionSpec

from dgpp.formats import Weight
from dgpp.formats.bf16 import BFLOAT16
from dgpp.kernels import Kernels, select
from dgpp.kernels.shapes import SMALL, SMOLLM2_135M, LinearShape
from tests.kernels import orders
from tests.kernels.same import assert_same_bits

TINY = np.finfo(np.float32).tiny
NATIVE = select("cpu")
NATIVE_LINEAR = jax.jit(NATIVE.linear)


@pytest.fixture(params=["reference", "cpu"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return select(request.param)


def weight(values: np.ndarray) -> Weight:
    return Weight({"values": jnp.asarray(values)}, "bf16", values.shape[-2:])


def gaussian(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(BFLOAT16)


def uneven(k: int) -> tuple[tuple[int, int], ...]:
    """Uneven leaves, one over another."""
    return ((0, max(1, k // 5)), (0, k), (k // 3, min(k, k // 3 + 17)))


@pytest.mark.parametrize("shape", SMALL, ids=lambda shape: shape.name)
def test_the_parts_have_the_bits_of_the_written_order(kernels: Kernels, shape: LinearShape) -> None:
    x, w = gaussian(13, shape.k), gaussian(*([shape.layers] if shape.layers else []), shape.n, shape.k, seed=1)
    ranges, layer = uneven(shape.k), max(0, shape.layers - 1)
    leaves = jax.jit(lambda *a: kernels.linear_leaves(*a, ranges))
    found = leaves(x, weight(w), np.int32(layer), np.int32(11))
    assert_same_bits(found, orders.linear_leaves(x, w, layer, 11, ranges))
    assert not np.signbit(np.asarray(found)[:, 11:]).any()


@pytest.mark.parametrize("used", [0, 1, 5, 13, 20])
def test_rows_beyond_used_are_positive_zeros(kernels: Kernels, used: int) -> None:
    x, w = gaussian(13, 83), gaussian(29, 83, seed=1)
    found = jax.jit(kernels.linear)(x, weight(w), np.int32(0), np.int32(used))
    assert_same_bits(found, orders.linear_leaves(x, w, 0, used, ((0, 83),))[0])
    assert not np.signbit(np.asarray(found)[used:]).any()


@pytest.mark.parametrize("shape", SMOLLM2_135M[:4], ids=lambda shape: shape.name)
def test_a_real_shape_has_the_bits_of_the_written_order(kernels: Kernels, shape: LinearShape) -> None:
    x, w = gaussian(2, shape.k), gaussian(2, shape.n, shape.k, seed=1)
    found = jax.jit(kernels.linear)(x, weight(w), np.int32(1), np.int32(2))
    assert_same_bits(found, orders.lane_dot(x, w[1]))


@pytest.mark.parametrize("rows", range(1, 71))
def test_any_number_of_rows_has_the_bits_of_the_written_order(rows: int) -> None:
    x, w = gaussian(70, 83)[:rows], gaussian(29, 83, seed=1)
    assert_same_bits(NATIVE_LINEAR(x, weight(w), np.int32(0), np.int32(rows)), orders.lane_dot(x, w))


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([1, 2, 5, 6, 7, 16, 33]), st.integers(0, 10**6))
def test_a_row_has_the_same_bits_alone_and_among_others_at_any_place(rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, w = gaussian(33, 100, seed=seed)[:rows], weight(gaussian(2, 31, 100, seed=1))
    place, used = rng.integers(rows), rng.integers(rows)
    alone = NATIVE_LINEAR(x[place : place + 1], w, np.int32(1), np.int32(1))
    together = NATIVE_LINEAR(x[rng.permutation(rows)], w, np.int32(1), np.int32(rows))
    assert any(np.asarray(row).tobytes() == np.asarray(alone[0]).tobytes() for row in together)
    some = NATIVE_LINEAR(x, w, np.int32(1), np.int32(used))
    assert_same_bits(some[place], alone[0] if place < used else np.zeros(31, np.float32))


def extremes(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if kind == "cancelling":  # sums that come back to zero, and to subnormals, from large terms
        x = np.round(x * 2) * 2.0 ** rng.integers(-60, 60, shape)
        x[..., 1::2] = -x[..., 0::2]
    elif kind == "subnormal":  # inputs below the normal range, among others
        x = np.where(rng.random(shape) < 0.5, x * 1e-39, x)
    elif kind == "infinite":
        x = np.where(rng.random(shape) < 0.004, np.inf * np.sign(x), x)
    elif kind == "nan":
        x = np.where(rng.random(shape) < 0.004, np.nan, x)
    elif kind == "large":  # sums that overflow, of products that do not
        x = np.clip(x, -2, 2) * 9e18
    return x.astype(np.float32).astype(BFLOAT16)


@pytest.mark.parametrize("kind", ["cancelling", "subnormal", "infinite", "nan", "large"])
def test_extreme_values_have_the_bits_of_the_written_order(kernels: Kernels, kind: str) -> None:
    x, w = extremes(kind, (5, 86), 0), extremes(kind, (30, 86), 1)
    expected = orders.lane_dot(x, w)
    if kind in ("infinite", "nan"):
        assert np.isnan(expected).any()
        assert np.isfinite(expected).any()
    if kind == "large":
        assert np.isinf(expected).any()
    assert_same_bits(jax.jit(kernels.linear)(x, weight(w), np.int32(0), np.int32(5)), expected)


def test_sums_of_products_below_the_normal_range_are_fused_by_the_native_kernel() -> None:
    x, w = (extremes("normal", shape, 0).astype(np.float32) * np.float32(1e-19) for shape in ((5, 86), (30, 86)))
    x, w = x.astype(BFLOAT16), w.astype(BFLOAT16)
    expected = orders.lane_dot(x, w)
    assert ((np.abs(expected) >= TINY) & (np.abs(expected) < 100 * TINY)).any()
    assert_same_bits(NATIVE_LINEAR(x, weight(w), np.int32(0), np.int32(5)), expected)


def test_infinities_beyond_a_range_do_not_reach_its_sum(kernels: Kernels) -> None:
    x, w = gaussian(2, 40), gaussian(9, 40, seed=1)
    clean = jax.jit(lambda *a: kernels.linear_leaves(*a, ((3, 22),)))(x, weight(w), np.int32(0), np.int32(2))
    x[:, :3], x[:, 22:], w[:, :3], w[:, 22:] = np.inf, np.nan, np.nan, np.inf
    dirty = jax.jit(lambda *a: kernels.linear_leaves(*a, ((3, 22),)))(x, weight(w), np.int32(0), np.int32(2))
    assert_same_bits(dirty, clean)


def test_a_layer_beyond_the_stack_is_clamped(kernels: Kernels) -> None:
    x, w = gaussian(2, 16), gaussian(3, 4, 16, seed=1)
    linear = jax.jit(kernels.linear)
    for layer, is_layer in ((-5, 0), (7, 2)):
        found = linear(x, weight(w), np.int32(layer), np.int32(2))
        assert_same_bits(found, linear(x, weight(w), np.int32(is_layer), np.int32(2)))


def test_a_scan_over_stacked_weights_with_a_traced_layer(kernels: Kernels) -> None:
    x, w = gaussian(3, 48), gaussian(4, 20, 48, seed=1)

    @jax.jit
    def layers(x: jax.Array, w: Weight) -> jax.Array:
        step = lambda carry, layer: (carry, kernels.linear(x, w, layer, jnp.int32(3)))  # noqa: E731
        return jax.lax.scan(step, 0, jnp.arange(4, dtype=jnp.int32))[1]

    assert_same_bits(layers(x, weight(w)), np.stack([orders.lane_dot(x, one) for one in w]))


def test_a_scan_takes_no_copy_of_the_weights() -> None:
    w = Weight({"values": jax.ShapeDtypeStruct((8, 512, 512), jnp.bfloat16)}, "bf16", (512, 512))

    def layers(x: jax.Array, w: Weight) -> jax.Array:
        step = lambda x, layer: (NATIVE.linear(x, w, layer, jnp.int32(1)).astype(jnp.bfloat16), None)  # noqa: E731
        return jax.lax.scan(step, x, jnp.arange(8, dtype=jnp.int32))[0]

    compiled = jax.jit(layers).lower(jax.ShapeDtypeStruct((1, 512), jnp.bfloat16), w).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 64 * 1024


@pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four virtual devices")
def test_four_devices_at_once_have_the_bits_of_one(kernels: Kernels) -> None:
    x, w = gaussian(7, 64), gaussian(2, 4 * 25, 64, seed=1)
    mesh = jax.make_mesh((4,), ("tp",), axis_types=(AxisType.Auto,))

    def local(x: jax.Array, values: jax.Array) -> jax.Array:
        one = Weight({"values": values}, "bf16", (25, 64))
        step = lambda layer, _: (layer + 1, kernels.linear(x, one, layer % 2, jnp.int32(7)))  # noqa: E731
        return jax.lax.scan(step, jnp.int32(0), length=20)[1]

    specs = {"in_specs": (PartitionSpec(), PartitionSpec(None, "tp")), "out_specs": PartitionSpec(None, None, "tp")}
    found = np.asarray(jax.jit(jax.shard_map(local, mesh=mesh, check_vma=False, **specs))(x, w))
    for step in range(20):
        assert_same_bits(found[step], orders.lane_dot(x, w[step % 2]))


X, W, ONE = jnp.zeros((2, 16), jnp.bfloat16), weight(np.zeros((4, 16), BFLOAT16)), jnp.int32(1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X.astype(jnp.float32), W, ONE, ONE), "x must be bfloat16"),
        ((X[0], W, ONE, ONE), "x must be bfloat16"),
        ((X[:, :8], W, ONE, ONE), "x has K = 8 and w has K = 16"),
        ((X, Weight({"values": W.arrays["values"][None, None]}, "bf16", (4, 16)), ONE, ONE), "w"),
        ((X, Weight({"values": jnp.zeros((4, 16))}, "bf16", (4, 16)), ONE, ONE), "w"),
        ((X, Weight(W.arrays, "no such format", (4, 16)), ONE, ONE), "no such format"),
        ((X, W, jnp.float32(1), ONE), "layer must be an int32 scalar"),
        ((X, W, ONE, jnp.ones(1, jnp.int32)), "used must be an int32 scalar"),
    ],
)
def test_wrong_arguments_are_named_while_tracing(kernels: Kernels, arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        jax.jit(kernels.linear).lower(*arguments)


@pytest.mark.parametrize(
    ("ranges", "message"), [((), "ranges is empty"), (((0, 17),), "no part of K"), (((5, 5),), "no part")]
)
def test_wrong_ranges_are_named_while_tracing(kernels: Kernels, ranges: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda: kernels.linear_leaves(X, W, ONE, ONE, ranges))


def test_unknown_kernels_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'cuda'.*reference, cpu"):
        select("cuda")
