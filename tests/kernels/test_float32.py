from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.formats import Weight, format_named
from dgpp.kernels import select
from dgpp.kernels.shapes import SMALL_ATTENTION
from tests.kernels.test_attention import FIELDS, RAGGED, batch

KERNELS = select("float32")
RNG = np.random.default_rng(0)


def weight(name: str, *shape: int) -> tuple[Weight, np.ndarray]:
    """A weight [2, *shape] of two layers in a format, and the decoded values of the second."""
    codec = format_named(name)
    layers = [codec.encode(RNG.standard_normal(shape).astype(np.float32)) for _ in range(2)]
    arrays = {field: np.stack([layer[field] for layer in layers]) for field in layers[0]}
    return Weight(arrays, name, shape), codec.decode(layers[1], shape).astype(np.float64)


@pytest.mark.parametrize("name", ["bf16", "f32", "fp8_block128", "nvfp4", "mxfp4"])
def test_linear_is_the_product_of_decoded_values(name: str) -> None:
    w, values = weight(name, 128, 256)
    x = RNG.standard_normal((5, 256)).astype(np.float32)
    found = jax.jit(KERNELS.linear)(x, w, np.int32(1), np.int32(4))
    exact = x.astype(np.float64) @ values.T
    assert np.abs(found[:4] - exact[:4]).max() < 1e-5 * np.abs(exact).max()
    assert not np.asarray(found[4]).any()
    ranges = ((0, 128), (128, 256))
    leaves = jax.jit(lambda *a: KERNELS.linear_leaves(*a, ranges))(x, w, np.int32(1), np.int32(5))
    assert np.abs(leaves[1] - x[:, 128:].astype(np.float64) @ values[:, 128:].T).max() < 1e-5 * np.abs(exact).max()


@pytest.mark.parametrize("name", ["bf16", "nvfp4"])
def test_grouped_linear_takes_the_matrices_of_the_chosen_experts(name: str) -> None:
    w, values = weight(name, 4, 32, 64)
    experts = np.array([[0, 3], [2, 1], [1, 9]], np.int32)
    one, each = (RNG.standard_normal(shape).astype(np.float32) for shape in ((3, 64), (3, 2, 64)))
    found = jax.jit(KERNELS.grouped_linear)(one, experts, w, np.int32(1), np.int32(3))
    exact = np.einsum("rk,renk->ren", one, values[np.minimum(experts, 3)])
    assert np.abs(found[:2] - exact[:2]).max() < 1e-5 * np.abs(exact).max()
    assert not np.asarray(found[2, 1]).any()  # an expert that is not held
    leaves = KERNELS.grouped_linear_leaves(each, experts, w, jnp.int32(1), jnp.int32(2), ((0, 32), (32, 64)))
    exact = np.einsum("rek,renk->ren", each, values[np.minimum(experts, 3)])
    assert np.abs(leaves.sum(0)[:2] - exact[:2]).max() < 1e-5 * np.abs(exact).max()
    assert not np.asarray(leaves[:, 2]).any()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_attention_is_a_softmax_over_the_visible_tokens(dtype: object) -> None:
    one = batch(SMALL_ATTENTION[1], RAGGED)
    operands = {name: getattr(one, name) for name in FIELDS}
    for name in ("q", "k", "v", "cache_k", "cache_v"):
        operands[name] = jnp.asarray(operands[name], dtype)
    out, *planes = KERNELS.attention(**operands, scale=one.scale)
    _, written_k, written_v = one.expected()
    for found, written in zip(planes, (written_k, written_v), strict=True):
        assert np.array_equal(np.asarray(found, np.float32), written.astype(np.float32), equal_nan=True)
    assert not np.asarray(out)[one.position < 0].any()
    for row in np.nonzero(one.position >= 0)[0]:
        keys, values = (
            np.concatenate(list(cache[one.layer, one.page_table[one.slot[row]]]))[: one.position[row] + 1, one.kv_index]
            for cache in (written_k.astype(np.float64), written_v.astype(np.float64))
        )
        score = np.einsum("hd,thd->ht", one.q[row].astype(np.float64), keys) * one.scale
        p = np.exp(score - score.max(1, keepdims=True))
        exact = np.einsum("ht,thd->hd", p / p.sum(1, keepdims=True), values)
        assert np.abs(out[row] - exact).max() < 1e-5


def test_sparse_attention_with_all_blocks_is_attention() -> None:
    one = batch(SMALL_ATTENTION[1], RAGGED)
    operands = {name: jnp.asarray(getattr(one, name)) for name in FIELDS}
    dense = KERNELS.attention(**operands, scale=one.scale)[0]
    blocks = jnp.tile(jnp.arange(12, dtype=jnp.int32), (len(one.position), 1))
    assert np.array_equal(KERNELS.sparse_attention(**operands, blocks=blocks, scale=one.scale, block=4)[0], dense)
    few = KERNELS.sparse_attention(**operands, blocks=blocks[:, :1], scale=one.scale, block=4)[0]
    assert np.abs(few - dense).max() > 0.01
