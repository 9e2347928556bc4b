from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.kernels.rows import Phase
from dgpp.layers.ngram import NgramTable, ngram_ids, splitmix64
from tests.layers.segments import SLOTS, Segment, rows_of
from tests.oracles import qwen

REAL = NgramTable(248320, 248044, 3, 8, 20_000_000, 128, 1234)
TINY = NgramTable(256, 3, 3, 2, 100, 8, 1234)
FIELDS = {"vocab_size": 256, "eos_token_id": 3, "ngram_size": 3, "heads_per_ngram": 2, "ngram_vocab_size_base": 100}
IM_END = 248046


def device_ids(
    table: NgramTable, tokens: list[int], segment: Segment, ring: jax.Array, world: int = 1, rank: int = 0
) -> tuple[np.ndarray, jax.Array]:
    """The rows of one segment's tokens by the compiled hash, and the ring after it."""
    constants = {name: jnp.asarray(x[rank]) for name, x in table.ranked(world).items()}
    constants["ngram.products"] = jnp.asarray(table.products())
    rows = rows_of(segment, padding=2)
    rows = replace(rows, token=jnp.array([*tokens, -1, -1], jnp.int32))

    def run(constants: Any, rows: Any, ring: Any) -> Any:
        return ngram_ids(table, constants, rows, {"ngram.tokens": ring}, jnp.int32(0))

    ids, state = jax.jit(run)(constants, rows, ring)
    return np.asarray(ids)[: len(tokens)], state["ngram.tokens"]


def empty(table: NgramTable) -> jax.Array:
    return jnp.full((1, SLOTS, table.ngram_size - 1 + 4), 5, jnp.int32)


def test_the_constants_are_those_of_the_release() -> None:
    """`layer_multipliers`, `ngram_heads_vocab_sizes` and the rows of Qwen3.8-Flash-Next (spec/models_qwen.md 3.4)."""
    assert REAL.multipliers == (23703573157769, 20109073645365, 8052911324071)
    assert REAL.sizes == (
        20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
        20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171,
    )  # fmt: skip
    assert REAL.offsets[:3] == (0, 20000003, 40000026)
    assert REAL.rows == 320_001_536
    assert TINY.multipliers == (4295158889762567, 35454616657218897, 19285316470915801)
    assert (TINY.sizes, TINY.offsets, TINY.rows) == ((101, 103, 107, 109), (0, 101, 204, 311), 424)


def test_a_second_table_goes_on_where_the_first_ended() -> None:
    second = replace(TINY, index=1)
    assert second.sizes == (113, 127, 131, 137)
    assert second.multipliers != TINY.multipliers
    assert splitmix64(0) == 0xE220A8397B1DCDAF  # the generator's published first output


def test_no_product_reaches_the_sign_bit() -> None:
    assert all((REAL.vocab_size - 1) * m < 2**63 for m in REAL.multipliers)
    assert all(m % 2 for m in REAL.multipliers)


@pytest.mark.parametrize("table", [REAL, TINY], ids=["real", "tiny"])
def test_the_compiled_hash_and_numpy_equal_pythons_integers(table: NgramTable) -> None:
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, table.vocab_size, 60).tolist()
    tokens[7] = tokens[20] = tokens[21] = table.eos
    tokens[30:33] = [table.vocab_size - 1] * 3
    c = {**FIELDS, "vocab_size": table.vocab_size, "eos_token_id": [table.eos, 1], "ngram_size": table.ngram_size}
    c |= {"heads_per_ngram": table.heads_per_ngram, "ngram_vocab_size_base": table.base}
    wanted = qwen.ngram_rows(c, np.array(tokens), 0)
    assert (table.ids(tokens) == wanted).all()
    found, _ = device_ids(table, tokens, Segment(1, 0, 60), empty(table))
    assert found.dtype == np.int32
    assert (found == wanted).all()


def test_trap_eos_of_the_config_ends_the_context_and_that_of_generation_does_not() -> None:
    def after(token: int) -> list[bool]:
        """Which of the next three positions still depend on what stood before `token`."""
        a, b = (REAL.ids([first, 11, token, 12, 13, 14]) for first in (7, 8))
        c = REAL.ids([7, 10, token, 12, 13, 14])
        return [bool((x != y).any()) for x, y in zip(a[3:], c[3:], strict=True)] + [bool((a[2] != b[2]).any())]

    assert after(248044) == [False, False, False, True]  # the EOS row itself still sees what precedes it
    assert after(IM_END) == [True, False, False, True]
    start, eos = REAL.ids([12, 13])[0], REAL.ids([9, 248044, 12, 13])[2]
    assert (start == eos).all()


def test_an_n_gram_of_four_ends_at_every_eos_in_it() -> None:
    table = replace(TINY, ngram_size=4, heads_per_ngram=4)
    assert table.orders == (*[2] * 4, *[3] * 4, *[4] * 4)
    tokens = [5, 3, 6, 7, 8, 3, 3, 9]
    wanted = qwen.ngram_rows({**FIELDS, "ngram_size": 4, "heads_per_ngram": 4}, np.array(tokens), 0)
    assert (table.ids(tokens) == wanted).all()
    assert (device_ids(table, tokens, Segment(0, 0, 8), empty(table))[0] == wanted).all()


@pytest.mark.parametrize("cuts", [(1,), (2, 3), (7, 8, 9), tuple(range(1, 16))])
def test_a_prompt_may_be_cut_anywhere(cuts: tuple[int, ...]) -> None:
    tokens = [5, 9, 3, 8, 7, 6, 3, 3, 11, 12, 13, 3, 14, 15, 16, 17]
    parts, ring = [], empty(TINY)
    for start, stop in zip((0, *cuts), (*cuts, 16), strict=True):
        part, ring = device_ids(TINY, tokens[start:stop], Segment(2, start, stop - start), ring)
        parts.append(part)
        assert (part == TINY.ids(tokens[start:stop], tokens[max(0, start - 2) : start])).all()  # two are enough
    assert (np.concatenate(parts) == TINY.ids(tokens)).all()


@pytest.mark.parametrize("accepted", range(1, 5))
def test_a_rollback_after_a_verify_needs_no_repair(accepted: int) -> None:
    tokens = [5, 9, 4, 8, 7, 6, 3, 10, 11, 12]
    _, ring = device_ids(TINY, tokens[:3], Segment(1, 0, 3), empty(TINY))
    drafted = [*tokens[3 : 3 + accepted], *[200] * (4 - accepted)]
    _, ring = device_ids(TINY, drafted, Segment(1, 3, 4, Phase.VERIFY), ring)
    at = 3 + accepted
    found, _ = device_ids(TINY, tokens[at:], Segment(1, at, 10 - at), ring)
    assert (found == TINY.ids(tokens)[at:]).all()


@pytest.mark.parametrize("world", [2, 4])
def test_each_rank_finds_its_heads_in_its_own_padded_leaves(world: int) -> None:
    tokens = np.random.default_rng(1).integers(4, 256, 12).tolist()
    per = TINY.heads // world
    bounds = [*TINY.offsets, TINY.rows]
    sizes = np.diff(bounds)
    for rank in range(world):
        found, _ = device_ids(TINY, tokens, Segment(0, 0, 12), empty(TINY), world, rank)
        wanted = TINY.ids(tokens)[:, rank * per : (rank + 1) * per]
        for i in range(per):
            leaf = rank * per + i  # four heads are four leaves here
            assert (found[:, i] == wanted[:, i] - bounds[leaf] + i * sizes.max()).all()


def test_a_table_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="ngram_vocab_size_base 600000000 makes an n-gram table"):
        NgramTable(256, 3, 3, 2, 600_000_000, 8, 1234)
    with pytest.raises(ValueError, match="3 heads cannot be cut in 4 leaves"):
        NgramTable(256, 3, 2, 3, 100, 8, 1234).ranked(1)
