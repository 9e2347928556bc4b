from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from dgpp.kernels import Kernels, select
from dgpp.kernels.shapes import SMALL_ATTENTION, AttentionShape
from tests.kernels import orders
from tests.kernels.same import assert_same_bits
from tests.kernels.test_attention import FIELDS, LAYER, RAGGED, Batch, batch

BLOCK = 4
SHAPE = SMALL_ATTENTION[1]
LONG = AttentionShape("wide pages", heads=4, kv_heads=2, dim=16, page=32)


@pytest.fixture(params=["reference"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return select(request.param)


def sparse(kernels: Kernels, one: Batch, blocks: np.ndarray) -> tuple[np.ndarray, ...]:
    operands = {name: getattr(one, name) for name in FIELDS}
    call = jax.jit(lambda **x: kernels.sparse_attention(**x, scale=one.scale, block=BLOCK))
    return tuple(np.asarray(x) for x in call(**operands, blocks=blocks.astype(np.int32)))


def attended(one: Batch, blocks: np.ndarray) -> np.ndarray:
    """bool [R, M * P]: the tokens of the blocks, and the tail."""
    tokens = np.arange(one.page_table.shape[1] * one.cache_k.shape[2])
    chosen = (tokens // BLOCK == blocks[..., None]).any(1)
    return chosen | (tokens >= (one.position[:, None] + 1) // BLOCK * BLOCK)


def all_blocks(one: Batch) -> np.ndarray:
    count = one.page_table.shape[1] * one.cache_k.shape[2] // BLOCK
    return np.tile(np.arange(count), (len(one.position), 1))


@pytest.mark.parametrize("dense", ["reference", "cpu"])
@pytest.mark.parametrize("shape", [SHAPE, LONG], ids=lambda shape: shape.name)
def test_with_all_blocks_selected_the_bits_are_those_of_attention(
    kernels: Kernels, shape: AttentionShape, dense: str
) -> None:
    one = batch(shape, RAGGED)
    for found, expected in zip(sparse(kernels, one, all_blocks(one)), one.run(select(dense)), strict=True):
        assert_same_bits(found, expected)


@pytest.mark.parametrize("shape", [SHAPE, LONG], ids=lambda shape: shape.name)
def test_selected_blocks_have_the_bits_of_the_written_order(kernels: Kernels, shape: AttentionShape) -> None:
    one = batch(shape, [(0, 70), (0, 71), (1, 37), (2, 0), (2, -1)])
    rng = np.random.default_rng(3)
    blocks = np.sort(np.stack([rng.permutation(18)[:5] for _ in one.position]), axis=1)
    blocks[0] = [0, 1, 14, 15, 99]  # pages without any token between, and a number that means none
    blocks[2, :2] = -1, 99
    names = [name for name in FIELDS if name != "zero"]
    expected = orders.attention(*(getattr(one, name) for name in names), one.scale, attended(one, blocks))
    for found, wanted in zip(sparse(kernels, one, blocks), expected, strict=True):
        assert_same_bits(found, wanted)


def test_tokens_that_are_not_selected_have_no_influence(kernels: Kernels) -> None:
    one, blocks = batch(SHAPE, [(0, 40)]), np.array([[2, 7]])
    kept = attended(one, blocks)[0].reshape(-1, SHAPE.page)
    poisoned_k, poisoned_v = one.cache_k.copy(), one.cache_v.copy()
    for j, page in enumerate(one.page_table[0]):
        poisoned_k[LAYER, page][~kept[j]] = np.nan
        poisoned_v[LAYER, page][~kept[j]] = np.inf
    out = sparse(kernels, replace(one, cache_k=poisoned_k, cache_v=poisoned_v), blocks)[0]
    assert np.isfinite(out).all()
    assert_same_bits(out, sparse(kernels, one, blocks)[0])


def scored(kernels: Kernels, one: Batch, heads: int = 3, dim: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Index scores of a random plane, and those of the written order."""
    rng = np.random.default_rng(1)
    q = rng.standard_normal((len(one.position), heads, dim)).astype(orders.BF16)
    pages, each = one.cache_k.shape[1], one.cache_k.shape[2] // BLOCK
    index = rng.standard_normal((2, pages, each, dim)).astype(orders.BF16)
    operands = (q, index, one.layer, one.page_table, one.position, one.slot, one.used)
    found = jax.jit(lambda *x: kernels.index_scores(*x, block=BLOCK))(*operands, np.int32(0))
    return np.asarray(found), orders.index_scores(*operands, BLOCK)


@pytest.mark.parametrize("shape", [SHAPE, LONG], ids=lambda shape: shape.name)
def test_scores_have_the_bits_of_the_written_order(kernels: Kernels, shape: AttentionShape) -> None:
    found, expected = scored(kernels, batch(shape, [*RAGGED[:-1], (2, 3), (1, -1)], used=12))
    assert_same_bits(found, expected)
    assert (found > 0).any()
    assert (found == 0).any()  # relu of every head


def test_a_block_counts_once_its_last_token_is_there(kernels: Kernels) -> None:
    positions = [0, 2, 3, 4, 6, 7, 8]
    found, _ = scored(kernels, batch(SHAPE, [(0, p) for p in positions]))
    assert np.isfinite(found).sum(axis=1).tolist() == [(p + 1) // BLOCK for p in positions]


def test_tie_order_is_the_lower_block_first(kernels: Kernels) -> None:
    scores = np.full((3, 9), -np.inf, np.float32)
    scores[0, :7] = [1, 3, 3, 0, 3, 3, 1]
    scores[1, :2] = [0, 0]
    scores[2, :9] = 5
    chosen = np.asarray(jax.jit(kernels.select_blocks, static_argnums=1)(scores, 3))
    assert chosen.tolist() == [[1, 2, 4], [0, 1, 9], [0, 1, 2]]


def test_the_selection_is_the_exact_top_k_in_ascending_order(kernels: Kernels) -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 40, (20, 300)).astype(np.float32)  # many ties
    chosen = np.asarray(kernels.select_blocks(scores, 64))
    for row, blocks in zip(scores, chosen, strict=True):
        assert blocks.tolist() == sorted(sorted(range(300), key=lambda b, row=row: (-row[b], b))[:64])


def test_fewer_blocks_than_the_budget_are_all_selected(kernels: Kernels) -> None:
    scores = np.full((1, 6), -np.inf, np.float32)
    scores[0, :4] = [0.5, 0, 2, 1]
    assert np.asarray(kernels.select_blocks(scores, 512)).tolist() == [[0, 1, 2, 3, 6, 6]]


def test_wrong_arguments_are_named_while_tracing(kernels: Kernels) -> None:
    one = batch(SHAPE, [(0, 5)])
    with pytest.raises(ValueError, match="blocks must be int32"):
        sparse(kernels, one, np.zeros((2, 3)))
    call = {name: getattr(one, name) for name in FIELDS} | {"blocks": np.zeros((1, 1), np.int32)}
    with pytest.raises(ValueError, match="block = 5 does not divide a page of 16"):
        kernels.sparse_attention(**call, scale=1.0, block=5)
    scores = (np.zeros((1, 2, 16), orders.BF16), np.zeros((1, 2, 4, 8), orders.BF16))
    with pytest.raises(ValueError, match="index_scores: index must be"):
        kernels.index_scores(*scores, one.layer, one.page_table, one.position, one.slot, one.used, one.zero, block=4)
