from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.formats import Weight
from dgpp.formats.registry import format_named
from dgpp.kernels import select
from dgpp.kernels.rows import Phase
from dgpp.kernels.stored import stored_as
from dgpp.layers.ngram import NgramTable, ngram_ids
from dgpp.layers.ple import SITES, ple, table_rows
from dgpp.layers.taps import Taps
from dgpp.world import Single
from tests.layers.segments import SLOTS, Segment, f64, gaussian, layer_rows, leaves, same, weight
from tests.oracles import qwen
from tests.oracles.reading import held

D, COUNT, PER_HEAD, WIDTH, DILATION, VERIFY, T, CAPACITY = 24, 4, 16, 4, 3, 4, 30, 34
WIDE = COUNT * D
TABLE = NgramTable(256, 3, DILATION, 2, 100, 8, 1234)
E = TABLE.heads * PER_HEAD
NAMED = frozenset(f"ple.{site}" for site in SITES)
CONFIG = {
    "hc_count": COUNT, "rms_norm_eps": 1e-6, "vocab_size": 256, "eos_token_id": 3, "ngram_size": DILATION,
    "heads_per_ngram": 2, "ngram_vocab_size_base": 100,
}  # fmt: skip


@cache
def tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "ple_embedding.ngram_embedding": gaussian(rng, TABLE.rows, PER_HEAD),
        "key_proj": gaussian(rng, WIDE, E, scale=E**-0.5),
        "value_proj": gaussian(rng, D, E, scale=E**-0.5),
        "norm_key": gaussian(rng, WIDE, scale=0.3),
        "norm_query": gaussian(rng, WIDE, scale=0.3),
        "norm_conv": gaussian(rng, WIDE, scale=0.3),
        "conv1d": gaussian(rng, WIDE, 1, WIDTH, scale=0.5),
    }


RNG = np.random.default_rng(1)
BRANCHES = gaussian(RNG, T, WIDE)
TOKENS = RNG.integers(4, 256, T)
TOKENS[[5, 17, 18]] = 3


def empty(stored: Any = jnp.bfloat16) -> dict[str, jax.Array]:
    conv = jnp.full((1, SLOTS, (WIDTH - 1) * DILATION + VERIFY, WIDE), jnp.nan, stored)
    return {"ple.conv": conv, "ngram.tokens": jnp.full((1, SLOTS, DILATION - 1 + VERIFY), 9, jnp.int32)}


@cache
def program(kernels: str) -> Callable[..., Any]:
    """Compiled: (branches, rows, state) -> (branches, state, the activations inside)."""
    k = select(kernels)
    w = {name.split(".")[-1]: weight(values) for name, values in tensors().items()}
    constants = {name: jnp.asarray(x[0]) for name, x in TABLE.ranked(1).items()}
    constants["ngram.products"] = jnp.asarray(TABLE.products())

    @jax.jit
    def run(x: jax.Array, rows: Any, state: Any) -> Any:
        taps, layer = Taps(NAMED), jnp.int32(0)
        with stored_as(k.stored):
            ids, state = ngram_ids(TABLE, constants, rows, state, layer)
            e = table_rows(w, layer, ids, k)
            args = (COUNT, DILATION, 1e-6, rows, state, layer, leaves(E), Single(), k, taps)
            y, after = ple(w, layer, x.astype(k.stored), e, *args)
        return y, after, taps.seen

    return run


def feed(
    state: Any, start: int, stop: int, phase: Phase = Phase.PREFILL, wrong: int = 0, kernels: str = "reference"
) -> tuple[np.ndarray, Any, Any]:
    """Rows start to stop of the text, of which the last `wrong` are others."""
    x, tokens = BRANCHES[start:stop].copy(), TOKENS[start:stop].copy()
    if wrong:
        x[-wrong:], tokens[-wrong:] = BRANCHES[:wrong] + x[-wrong:], 200
    padded, rows = layer_rows(CAPACITY, x, Segment(1, start, stop - start, phase))
    rows = replace(rows, token=jnp.asarray(np.pad(tokens, (0, CAPACITY - len(tokens))), jnp.int32))
    y, after, seen = program(kernels)(padded, rows, state)
    return np.asarray(y)[: stop - start], after, seen


def exact(**changed: np.ndarray) -> np.ndarray:
    text = qwen.text(CONFIG, held({**tensors(), **changed}), TOKENS.tolist())
    return f64(BRANCHES) + qwen.ple(text, f64(BRANCHES), "", 0)


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(f64(found) - wanted) / np.linalg.norm(wanted - f64(BRANCHES)))


def test_in_float32_the_layer_is_its_equations() -> None:
    assert error(feed(empty(jnp.float32), 0, T, kernels="float32")[0], exact()) < 2e-6


def test_in_bf16_it_stays_within_its_roundings() -> None:
    y, _, seen = feed(empty(), 0, T)
    assert 1e-3 < error(y, exact()) < 2e-2
    assert set(seen) == NAMED
    assert same(y, feed(empty(), 0, T, kernels="cpu")[0])


def test_trap_conv_tap_order_and_dilation_are_seen_in_the_output() -> None:
    assert error(exact(conv1d=tensors()["conv1d"][..., ::-1]), exact()) > 0.3
    _, _, seen = feed(empty(jnp.float32), 0, T, kernels="float32")
    normed = qwen.grouped_norm(f64(seen["ple.u"])[:T], f64(tensors()["norm_conv"]), COUNT, 1e-6)
    by_hand = sum(normed[20 - 9 + 3 * k] * f64(tensors()["conv1d"])[:, 0, k] for k in range(4))
    assert np.abs(f64(seen["ple.conv"])[20] - qwen.silu(by_hand)).max() < 1e-5


@pytest.mark.parametrize("cuts", [(1,), (3, 4, 9), (10, 12), (5, 6, 7, 18, 19), tuple(range(1, T))])
def test_a_prompt_may_be_cut_inside_the_window_and_at_an_eos(cuts: tuple[int, ...]) -> None:
    whole, end, _ = feed(empty(), 0, T)
    parts, state = [], empty()
    for start, stop in zip((0, *cuts), (*cuts, T), strict=True):
        part, state, _ = feed(state, start, stop)
        parts.append(part)
    assert same(np.concatenate(parts), whole)
    assert same(state["ple.conv"][0, 1], end["ple.conv"][0, 1])


def test_a_step_of_one_row_has_the_bits_of_a_large_one() -> None:
    whole, _, _ = feed(empty(), 0, T)
    _, state, _ = feed(empty(), 0, 20)
    for row in range(20, 23):
        x, rows = layer_rows(1, BRANCHES[row : row + 1], Segment(1, row, 1, Phase.DECODE))
        y, state, _ = program("reference")(x, replace(rows, token=jnp.asarray(TOKENS[row : row + 1], jnp.int32)), state)
        assert same(y[0], whole[row])


@pytest.mark.parametrize("accepted", range(VERIFY + 1))
def test_a_rollback_at_every_row_of_a_verify_leaves_no_trace(accepted: int) -> None:
    whole, _, _ = feed(empty(), 0, T)
    _, state, _ = feed(empty(), 0, 14)
    part, state, _ = feed(state, 14, 14 + VERIFY, Phase.VERIFY, wrong=VERIFY - accepted)
    assert same(part[:accepted], whole[14 : 14 + accepted])
    part, _, _ = feed(state, 14 + accepted, T, Phase.DECODE)
    assert same(part, whole[14 + accepted :])


def test_a_key_and_query_that_do_not_overlap_open_the_gate_half() -> None:
    """sign(0) is 0: the floor under the root does not move g = 0 to either side."""
    w = {name.split(".")[-1]: weight(values) for name, values in tensors().items()}
    w["norm_query"] = weight(np.full(WIDE, -1.0))  # the query is zero

    @jax.jit
    def gate(x: jax.Array, rows: Any, state: Any) -> jax.Array:
        taps, e, layer = Taps(NAMED), jnp.ones((CAPACITY, E), jnp.bfloat16), jnp.int32(0)
        args = (COUNT, DILATION, 1e-6, rows, state, layer, leaves(E), Single(), select("reference"), taps)
        ple(w, layer, x, e, *args)
        return taps.seen["ple.gate"]

    x, rows = layer_rows(CAPACITY, BRANCHES, Segment(1, 0, T))
    assert (f64(gate(x, rows, empty()))[:T] == 0.5).all()


def test_table_rows_are_the_published_values_of_the_heads_side_by_side() -> None:
    codec = format_named("fp8_tensor")
    values = f64(tensors()["ple_embedding.ngram_embedding"]).astype(np.float32)
    arrays = codec.encode(values)
    stacked = {field: jnp.asarray(array[None]) for field, array in arrays.items() if field in ("codes", "scale")}
    table = Weight(stacked, "fp8_tensor", values.shape, (1,))
    ids = TABLE.ids(TOKENS.tolist()).astype(np.int32)
    found = table_rows({"ngram_embedding": table}, jnp.int32(1), jnp.asarray(ids), select("reference"))
    assert found.dtype == jnp.bfloat16
    assert (f64(found) == codec.decode(arrays, values.shape)[ids].reshape(T, E)).all()
