"""Sinks, windows, rows of FP8 and values of another width: what attention may be asked for beside the plain form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from dgpp.formats.bf16 import BFLOAT16
from dgpp.formats.cache import KVRows
from dgpp.kernels import Kernels, select
from dgpp.kernels.shapes import SMALL_ATTENTION
from tests.kernels import orders
from tests.kernels.same import assert_same_bits
from tests.kernels.test_attention import FIELDS, LAYER, RAGGED, Batch, batch

SHAPE = SMALL_ATTENTION[1]
SINKS = np.array([0.5, -3, 2, -np.inf, 8, 0], np.float32)


@pytest.fixture(params=["reference", "cpu"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return select(request.param)


def run(
    kernels: Kernels, one: Batch, sinks: np.ndarray | None = None, window: int = 0, caches: dict[str, Any] | None = None
) -> list[Any]:
    operands = {name: getattr(one, name) for name in FIELDS} | (caches or {})
    call = jax.jit(lambda sinks, **x: kernels.attention(**x, scale=one.scale, sinks=sinks, window=window))
    return jax.tree.map(np.asarray, list(call(sinks, **operands)))


def expected(one: Batch, sinks: np.ndarray | None = None, window: int = 0) -> tuple[np.ndarray, ...]:
    tokens = np.arange(one.page_table.shape[1] * one.cache_k.shape[2])
    attended = tokens > one.position[:, None] - window if window else None
    operands = {name: getattr(one, name) for name in FIELDS if name != "zero"}
    return orders.attention(**operands, scale=one.scale, attended=attended, sinks=sinks)


@pytest.mark.parametrize("window", [1, 3, 15, 16, 17, 33])
def test_a_window_has_the_bits_of_the_written_order(kernels: Kernels, window: int) -> None:
    one = batch(SHAPE, [*RAGGED, (3, 40)])
    for found, wanted in zip(run(kernels, one, window=window), expected(one, window=window), strict=True):
        assert_same_bits(found, wanted)


def test_what_lies_before_the_window_has_no_influence(kernels: Kernels) -> None:
    one = batch(SHAPE, [(0, 40)])
    poisoned = replace(one, cache_k=one.cache_k.copy(), cache_v=one.cache_v.copy())
    for token in range(40 - 20 + 1):
        at = (LAYER, one.page_table[0, token // SHAPE.page], token % SHAPE.page)
        poisoned.cache_k[at], poisoned.cache_v[at] = np.nan, np.inf
    out = run(kernels, poisoned, window=20)[0]
    assert np.isfinite(out).all()
    assert_same_bits(out, run(kernels, one, window=20)[0])


def test_a_window_that_holds_everything_changes_no_bit(kernels: Kernels) -> None:
    one = batch(SHAPE, RAGGED)
    assert_same_bits(run(kernels, one, window=64)[0], one.run(kernels)[0])


@pytest.mark.parametrize("window", [0, 17])
def test_sinks_have_the_bits_of_the_written_order(kernels: Kernels, window: int) -> None:
    one = batch(SHAPE, RAGGED)
    for found, wanted in zip(run(kernels, one, SINKS, window), expected(one, SINKS, window), strict=True):
        assert_same_bits(found, wanted)


def test_a_sink_of_minus_infinity_changes_no_bit_and_a_nan_is_not_lost(kernels: Kernels) -> None:
    one = batch(SHAPE, RAGGED)
    none = np.full(SHAPE.heads, -np.inf, np.float32)
    assert_same_bits(run(kernels, one, none)[0], one.run(kernels)[0])
    none[2] = np.nan
    out = run(kernels, one, none)[0][one.position >= 0]
    assert np.isnan(out[:, 2]).all()
    assert np.isfinite(np.delete(out, 2, axis=1)).all()


def test_values_may_be_narrower_than_keys(kernels: Kernels) -> None:
    one = batch(SHAPE, RAGGED)
    narrow = replace(one, v=one.v[..., :16], cache_v=np.ascontiguousarray(one.cache_v[..., :16]))
    out, cache_k, cache_v = run(kernels, narrow, SINKS)
    wide = run(kernels, one, SINKS)
    assert_same_bits(out, wide[0][..., :16])
    assert_same_bits(cache_k, wide[1])
    assert_same_bits(cache_v, wide[2][..., :16])


def rows_of_fp8(cache: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.asarray(plane) for name, plane in KVRows().encode(cache.astype(np.float32)).items()}


def decoded(planes: dict[str, np.ndarray]) -> np.ndarray:
    return np.asarray(KVRows().decode(planes, SHAPE.dim)).astype(BFLOAT16)


@pytest.mark.parametrize("window", [0, 17])
def test_rows_of_fp8_have_the_bits_of_a_cache_that_holds_the_decoded_rows(kernels: Kernels, window: int) -> None:
    one = batch(SHAPE, RAGGED)
    one = replace(one, cache_k=np.nan_to_num(one.cache_k), cache_v=np.nan_to_num(one.cache_v))
    planes = {"cache_k": rows_of_fp8(one.cache_k), "cache_v": rows_of_fp8(one.cache_v)}
    out, *after = run(kernels, one, SINKS, window, planes)
    as_stored = replace(
        one,
        k=decoded(rows_of_fp8(one.k)),
        v=decoded(rows_of_fp8(one.v)),
        cache_k=decoded(planes["cache_k"]),
        cache_v=decoded(planes["cache_v"]),
    )
    wanted = run(kernels, as_stored, SINKS, window)
    assert_same_bits(out, wanted[0])
    for found, cache in zip(after, wanted[1:], strict=True):
        assert_same_bits(decoded(found), cache)


def test_float32_kernels_know_the_options() -> None:
    one = batch(SHAPE, RAGGED)
    live = one.position >= 0
    for window in (0, 17):
        out = run(select("float32"), one, SINKS, window)[0]
        np.testing.assert_allclose(out[live], expected(one, SINKS, window)[0][live], rtol=0, atol=2**-7)
    clean = replace(one, cache_k=np.nan_to_num(one.cache_k), cache_v=np.nan_to_num(one.cache_v))
    planes = {"cache_k": rows_of_fp8(clean.cache_k), "cache_v": rows_of_fp8(clean.cache_v)}
    found, wanted = (run(select(name), clean, SINKS, caches=planes) for name in ("float32", "reference"))
    np.testing.assert_allclose(found[0][live], wanted[0][live], rtol=0, atol=2**-7)
    for a, b in zip(jax.tree.leaves(found[1:]), jax.tree.leaves(wanted[1:]), strict=True):
        assert_same_bits(a, b)


def test_wrong_options_are_named_while_tracing(kernels: Kernels) -> None:
    one = batch(SHAPE, [(0, 5)])
    planes = {"cache_k": rows_of_fp8(one.cache_k), "cache_v": rows_of_fp8(one.cache_v)}
    with pytest.raises(ValueError, match="attention: sinks must be float32 of shape"):
        run(kernels, one, np.zeros(5, np.float32))
    with pytest.raises(ValueError, match="attention: window = -1"):
        run(kernels, one, window=-1)
    with pytest.raises(ValueError, match="both bfloat16 or both rows of FP8"):
        run(kernels, one, caches={"cache_k": planes["cache_k"]})
    with pytest.raises(ValueError, match=r"attention: cache_v\[scale\] must be float32"):
        run(kernels, one, caches=planes | {"cache_v": planes["cache_v"] | {"scale": np.zeros(3, np.float32)}})
    with pytest.raises(ValueError, match="cache_k must hold"):
        run(kernels, one, caches=planes | {"cache_k": {"codes": planes["cache_k"]["codes"]}})
    with pytest.raises(ValueError, match="multiples of 16"):
        run(kernels, one, caches={"v": one.v[..., :8], "cache_v": one.cache_v[..., :8]})
