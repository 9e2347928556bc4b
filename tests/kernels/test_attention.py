from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from jax.sharding import AxisType, PartitionSpec

from dgpp.formats.bf16 import BFLOAT16
from dgpp.kernels import Kernels, select
from dgpp.kernels.shapes import SMALL_ATTENTION, SMOLLM2_135M_ATTENTION, AttentionShape
from tests.kernels import orders
from tests.kernels.same import assert_same_bits

NATIVE = select("cpu")
LAYERS, LAYER = 2, 1
FIELDS = ("q", "k", "v", "cache_k", "cache_v", "layer", "page_table", "position", "slot", "kv_index", "used", "zero")


@pytest.fixture(params=["reference", "cpu"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return select(request.param)


@dataclass(frozen=True)
class Batch:
    """The operands of one call, as NumPy arrays; the cache is full of other tokens, and has NaN where nobody wrote."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    cache_k: np.ndarray
    cache_v: np.ndarray
    page_table: np.ndarray
    position: np.ndarray
    slot: np.ndarray
    kv_index: np.ndarray
    used: np.int32
    layer: np.int32
    zero: np.int32
    scale: float = 0.3

    def run(self, kernels: Kernels) -> tuple[np.ndarray, ...]:
        call = jax.jit(lambda **operands: kernels.attention(**operands, scale=self.scale))
        return tuple(np.asarray(x) for x in call(**{name: getattr(self, name) for name in FIELDS}))

    def expected(self) -> tuple[np.ndarray, ...]:
        names = [name for name in FIELDS if name != "zero"]
        return orders.attention(*(getattr(self, name) for name in names), self.scale)


def batch(shape: AttentionShape, rows: list[tuple[int, int]], used: int | None = None, seed: int = 0) -> Batch:
    """`rows` are (slot, position); a slot's pages are scattered, and what lies behind its last row is NaN."""
    rng = np.random.default_rng(seed)
    slots, pages = max((slot for slot, _ in rows), default=0) + 1, max(p for _, p in rows) // shape.page + 1

    def gaussian(*size: int) -> np.ndarray:
        return rng.standard_normal(size).astype(np.float32).astype(BFLOAT16)

    table = rng.permutation(slots * pages + 3)[: slots * pages].reshape(slots, pages).astype(np.int32)
    caches = [gaussian(LAYERS, slots * pages + 3, shape.page, shape.kv_heads, shape.dim) for _ in range(2)]
    for slot in range(slots):
        length = max((position for at, position in rows if at == slot), default=-1) + 1
        for j, page in enumerate(table[slot]):
            for cache in caches:
                cache[LAYER, page, max(0, length - j * shape.page) :] = np.nan
    return Batch(
        gaussian(len(rows), shape.heads, shape.dim),
        gaussian(len(rows), shape.kv_heads, shape.dim),
        gaussian(len(rows), shape.kv_heads, shape.dim),
        *caches,
        table,
        np.array([position for _, position in rows], np.int32),
        np.array([slot for slot, _ in rows], np.int32),
        np.array(shape.kv_index, np.int32),
        np.int32(len(rows) if used is None else used),
        np.int32(LAYER),
        np.int32(0),
    )


# A prompt's piece over a page border, two rows that decode, padding between and behind them.
RAGGED = [(0, position) for position in range(12, 20)] + [(1, 37), (0, -1), (2, 0), (2, -1)]


def assert_expected(batch: Batch, kernels: Kernels) -> None:
    for found, expected in zip(batch.run(kernels), batch.expected(), strict=True):
        assert_same_bits(found, expected)


@pytest.mark.parametrize("shape", [*SMALL_ATTENTION, SMOLLM2_135M_ATTENTION], ids=lambda shape: shape.name)
def test_a_ragged_batch_has_the_bits_of_the_written_order(shape: AttentionShape) -> None:
    assert_expected(batch(shape, RAGGED), NATIVE)


@pytest.mark.parametrize("shape", [SMALL_ATTENTION[3], SMOLLM2_135M_ATTENTION], ids=lambda shape: shape.name)
def test_plain_jax_has_the_bits_of_the_written_order_too(shape: AttentionShape) -> None:
    assert_expected(batch(shape, RAGGED), select("reference"))


@pytest.mark.parametrize("position", [0, 14, 15, 16, 17, 31, 32, 47, 63, 100])
def test_every_place_in_a_page_has_the_bits_of_the_written_order(position: int) -> None:
    assert_expected(batch(SMOLLM2_135M_ATTENTION, [(0, position)]), NATIVE)


@pytest.mark.parametrize("kv_index", [(0, 0, 1, 1, 1, 1, 1, 2, 2), (2, 0, 2, 0, 1, 1, 0, 0, 0), (1,) * 9])
def test_query_heads_may_use_any_key_head(kv_index: tuple[int, ...]) -> None:
    assert_expected(replace(batch(SMOLLM2_135M_ATTENTION, RAGGED), kv_index=np.array(kv_index, np.int32)), NATIVE)


def test_rows_beyond_used_are_padding(kernels: Kernels) -> None:
    one = batch(SMALL_ATTENTION[1], RAGGED, used=9)
    out, cache_k, cache_v = one.run(kernels)
    assert_expected(one, kernels)
    assert (out[9:] == 0).all()
    assert not np.signbit(out[9:]).any()
    place = (LAYER, one.page_table[2, 0], 0)  # of row 10
    assert_same_bits(cache_k[place], one.cache_k[place])
    assert_same_bits(cache_v[place], one.cache_v[place])
    assert cache_k[place].tobytes() != one.k[10].tobytes()


@pytest.mark.parametrize(("slot", "position"), [(3, 0), (-1, 0), (0, 48), (0, -7)])
def test_a_row_outside_the_table_is_padding(kernels: Kernels, slot: int, position: int) -> None:
    good = batch(SMALL_ATTENTION[1], [(0, 5), (1, 40), (2, 0)])
    bad = replace(good, slot=np.int32([0, 1, slot]), position=np.int32([5, 40, position]))
    for found, expected in zip(bad.run(kernels), replace(good, used=np.int32(2)).run(kernels), strict=True):
        assert_same_bits(found, expected)


def test_pages_and_layers_outside_the_cache_are_clamped(kernels: Kernels) -> None:
    good = batch(SMALL_ATTENTION[1], [(0, 20)])
    last = good.cache_k.shape[1] - 1
    clamped = replace(good, page_table=np.int32([[0, last]]))
    wild = replace(good, page_table=np.int32([[-9, 10**6]]), layer=np.int32(99))
    for found, expected in zip(wild.run(kernels), clamped.run(kernels), strict=True):
        assert_same_bits(found, expected)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 12), st.integers(0, 10**6))
def test_a_row_has_the_same_bits_alone_and_among_others_at_any_place(rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    slots = [(slot, int(position)) for slot, position in enumerate(rng.integers(0, 70, rows))]
    together = batch(SMALL_ATTENTION[1], slots, seed=seed)
    order = rng.permutation(rows)
    mixed = replace(together, **{name: getattr(together, name)[order] for name in ("q", "k", "v", "position", "slot")})
    out = mixed.run(NATIVE)[0]
    place = int(rng.integers(rows))
    row = {name: getattr(mixed, name)[place : place + 1] for name in ("q", "k", "v", "position", "slot")}
    assert_same_bits(replace(mixed, used=np.int32(1), **row).run(NATIVE)[0][0], out[place])


def test_a_prompt_has_the_same_bits_in_one_piece_and_cut_anywhere() -> None:
    whole = batch(SMALL_ATTENTION[1], [(0, position) for position in range(40)])
    out = whole.run(NATIVE)[0]
    for cut in (1, 15, 16, 17, 39):
        first, second = (
            replace(whole, used=np.int32(len(range(40)[part])),
                    **{name: getattr(whole, name)[part] for name in ("q", "k", "v", "position", "slot")})
            for part in (slice(cut), slice(cut, None))
        )  # fmt: skip
        one, cache_k, cache_v = first.run(NATIVE)
        two = replace(second, cache_k=cache_k, cache_v=cache_v).run(NATIVE)[0]
        assert_same_bits(np.concatenate([one, two]), out)


@pytest.mark.parametrize("spread", [0.3, 3.0, 30.0])
def test_the_result_is_close_to_float64(kernels: Kernels, spread: float) -> None:
    one = batch(SMOLLM2_135M_ATTENTION, [(0, 200), (1, 77)])
    one = replace(one, q=(one.q.astype(np.float32) * spread).astype(BFLOAT16))
    out, cache_k, cache_v = one.run(kernels)
    for row, (slot, position) in enumerate(zip(one.slot, one.position, strict=True)):
        keys, values = (
            np.concatenate(list(cache[LAYER, one.page_table[slot]]))[: position + 1, one.kv_index].astype(np.float64)
            for cache in (cache_k, cache_v)
        )
        score = np.einsum("hd,thd->ht", one.q[row].astype(np.float64), keys) * np.float32(one.scale)
        weight = np.exp(score - score.max(1, keepdims=True))
        weight /= weight.sum(1, keepdims=True)
        exact = np.einsum("ht,thd->hd", weight, values)
        # A weight is rounded to bfloat16, in the sum of values and in l alike: 2^-8 of each term twice over, and the
        # error of a score, 2^-24 of its terms' magnitudes times some roundings, moves its weight by as much.
        moved = np.abs(score).max(1, keepdims=True) * 2.0**-20
        bound = (2.0**-7 + moved) * np.einsum("ht,thd->hd", weight, np.abs(values)) + 1e-6
        assert (np.abs(out[row] - exact) <= bound).all()


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_have_the_bits_of_the_written_order(kernels: Kernels, poison: float) -> None:
    one = batch(SMALL_ATTENTION[1], [(0, 20), (1, 33), (2, 40)])
    q, k, v = one.q.copy(), one.k.copy(), one.v.copy()
    q[0, 2, 5] = poison
    k[1, 1, 3] = poison
    v[2, 0, 7] = poison
    poisoned = replace(one, q=q, k=k, v=v)
    assert np.isnan(poisoned.expected()[0]).any()
    assert np.isfinite(poisoned.expected()[0]).any()
    assert_expected(poisoned, kernels)


def test_the_caches_are_updated_where_they_lie_in_a_scan() -> None:
    """Twice the layers cost about twice the time whatever the cache's size, and no temporary is of its size."""
    shape = (4, 256, 16, 3, 64)
    operands = batch(SMOLLM2_135M_ATTENTION, [(0, 20), (1, 33)])

    def step(cache_k: jax.Array, cache_v: jax.Array) -> tuple[jax.Array, ...]:
        def layer(caches: tuple[jax.Array, ...], layer: jax.Array) -> tuple[tuple[jax.Array, ...], jax.Array]:
            fixed: dict[str, Any] = {name: jnp.asarray(getattr(operands, name)) for name in FIELDS}
            fixed |= {"cache_k": caches[0], "cache_v": caches[1], "layer": layer}
            out, *caches_after = NATIVE.attention(**fixed, scale=0.3)
            return tuple(caches_after), out

        caches, outs = jax.lax.scan(layer, (cache_k, cache_v), jnp.arange(shape[0], dtype=jnp.int32))
        return *caches, outs

    cache_k, cache_v = (jnp.zeros(shape, jnp.bfloat16) for _ in range(2))
    compiled = jax.jit(step, donate_argnums=(0, 1)).lower(cache_k, cache_v).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < cache_k.nbytes // 8
    places = cache_k.unsafe_buffer_pointer(), cache_v.unsafe_buffer_pointer()
    after_k, after_v, outs = compiled(cache_k, cache_v)
    assert (after_k.unsafe_buffer_pointer(), after_v.unsafe_buffer_pointer()) == places
    assert cache_k.is_deleted()
    for layer in range(shape[0]):
        empty = np.zeros(shape, BFLOAT16)
        one = replace(operands, cache_k=empty, cache_v=empty, layer=np.int32(layer))
        expected = one.expected()
        assert_same_bits(outs[layer], expected[0])
        assert_same_bits(np.asarray(after_k)[layer], expected[1][layer])
        assert_same_bits(np.asarray(after_v)[layer], expected[2][layer])


@pytest.mark.skipif(len(jax.devices()) < 4, reason="needs four virtual devices")
def test_four_devices_at_once_have_the_bits_of_one(kernels: Kernels) -> None:
    shape = AttentionShape("eight heads", heads=8, kv_heads=4, dim=32)
    one = batch(shape, RAGGED)
    expected = one.expected()
    mesh = jax.make_mesh((4,), ("tp",), axis_types=(AxisType.Auto,))
    heads, cache = PartitionSpec(None, "tp"), PartitionSpec(None, None, None, "tp")
    specs = {name: PartitionSpec() for name in FIELDS} | {"q": heads, "k": heads, "v": heads}
    specs |= {"cache_k": cache, "cache_v": cache}
    operands = {name: getattr(one, name) for name in FIELDS} | {"kv_index": np.zeros(2, np.int32)}

    def local(operands: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        return kernels.attention(**operands, scale=one.scale)

    sharded = jax.shard_map(local, mesh=mesh, in_specs=(specs,), out_specs=(heads, cache, cache), check_vma=False)
    run = jax.jit(sharded)
    for _ in range(5):
        for found, wanted in zip(run(operands), expected, strict=True):
            assert_same_bits(found, wanted)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("q", np.zeros((3, 6, 32), np.float32)),
        ("q", np.zeros((3, 6), BFLOAT16)),
        ("k", np.zeros((3, 3, 32), BFLOAT16)),
        ("v", np.zeros((2, 2, 32), BFLOAT16)),
        ("cache_k", np.zeros((2, 6, 16, 2), BFLOAT16)),
        ("cache_v", np.zeros((2, 6, 32, 2, 32), BFLOAT16)),
        ("layer", np.float32(0)),
        ("page_table", np.zeros(3, np.int32)),
        ("position", np.zeros(2, np.int32)),
        ("slot", np.zeros(3, np.int16)),
        ("kv_index", np.zeros(5, np.int32)),
        ("used", np.zeros(1, np.int32)),
        ("zero", np.float32(0)),
    ],
)
def test_wrong_arguments_are_named_while_tracing(kernels: Kernels, field: str, value: np.ndarray) -> None:
    operands = batch(SMALL_ATTENTION[1], [(0, 5), (1, 20), (2, 40)])
    arguments = {name: getattr(operands, name) for name in FIELDS} | {field: value}
    with pytest.raises(ValueError, match=f"attention: {field}"):
        jax.eval_shape(lambda: kernels.attention(**arguments, scale=1.0))


def test_a_page_that_is_no_multiple_of_sixteen_is_refused(kernels: Kernels) -> None:
    shape = AttentionShape("short pages", heads=2, kv_heads=1, dim=16, page=24)
    with pytest.raises(ValueError, match="multiples of 16"):
        batch(shape, [(0, 5)]).run(kernels)
