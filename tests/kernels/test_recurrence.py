from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.kernels import Kernels, select
from dgpp.kernels.recurrence import DeltaState
from tests.kernels import orders
from tests.kernels.same import assert_same_bits

F32 = np.float32
LAYERS, SLOTS, WIDTH, LAYER = 2, 3, 4, 1
KEYS, VALUES, DK, DV = 2, 5, 24, 16  # keys that are no multiple of the lanes; a value head may read any key head
KEY_INDEX = np.array([0, 1, 1, 0, 1], np.int32)


@pytest.fixture(params=["reference"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    return select(request.param)


@dataclass(frozen=True)
class Run:
    """A run of rows of one slot: positions from `start`, which commit or not, after a replay of `replay` rows."""

    slot: int
    start: int
    count: int
    commits: bool = True
    replay: int = 0


@dataclass(frozen=True)
class Batch:
    """The operands of one call as NumPy arrays."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    g: np.ndarray
    beta: np.ndarray
    position: np.ndarray
    slot: np.ndarray
    commits: np.ndarray
    last: np.ndarray
    replay: np.ndarray
    used: np.int32

    def run(self, kernels: Kernels, state: DeltaState) -> tuple[np.ndarray, DeltaState]:
        row = (self.q, self.k, self.v, self.g, self.beta)
        rest = (np.int32(LAYER), self.position, self.slot, self.commits, self.last, self.replay, self.used, KEY_INDEX)
        o, after = jax.jit(kernels.gated_delta)(*row, state, *rest, np.int32(0))
        return np.asarray(o), jax.tree.map(np.asarray, after)

    def expected(self, state: DeltaState) -> tuple[np.ndarray, DeltaState]:
        rings = {name: np.asarray(getattr(state, name)) for name in ("k", "v", "gates")}
        row = (self.q, self.k, self.v, self.g, self.beta, np.asarray(state.s), rings, LAYER)
        rest = (self.position, self.slot, self.commits, self.last, self.replay, self.used, KEY_INDEX)
        o, s, rings = orders.gated_delta(*row, *rest)
        return o, DeltaState(s, **rings)


def unit(rng: np.random.Generator, *shape: int) -> np.ndarray:
    x = rng.standard_normal(shape).astype(F32)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def batch(*runs: Run, padding: int = 0, channels: bool = False, seed: int = 0) -> Batch:
    """Rows of random inputs; the decay of a value head is one number, or one per key channel."""
    rng = np.random.default_rng(seed)
    rows = sum(run.count for run in runs) + padding
    position, slot, last = np.full(rows, -1), np.full(rows, -1), np.arange(rows)
    commits, replay, first = np.ones(rows, bool), np.zeros(SLOTS), 0
    for run in runs:
        inside = slice(first, first + run.count)
        position[inside], slot[inside] = np.arange(run.start, run.start + run.count), run.slot
        last[inside], commits[inside], replay[run.slot] = first + run.count - 1, run.commits, run.replay
        first += run.count
    gates = (rows, VALUES, DK) if channels else (rows, VALUES)
    return Batch(
        unit(rng, rows, KEYS, DK),
        unit(rng, rows, KEYS, DK),
        rng.standard_normal((rows, VALUES, DV)).astype(orders.BF16),
        -np.abs(rng.standard_normal(gates)).astype(F32) / 4,
        rng.uniform(0, 1, (rows, VALUES)).astype(F32),
        position.astype(np.int32),
        slot.astype(np.int32),
        commits,
        last.astype(np.int32),
        replay.astype(np.int32),
        np.int32(first),
    )


def random_state(channels: bool = False, seed: int = 9) -> DeltaState:
    rng = np.random.default_rng(seed)
    gates = rng.uniform(0, 1, (LAYERS, SLOTS, WIDTH, VALUES, (DK if channels else 1) + 1)).astype(F32)
    gates[..., :-1] *= -0.2
    return DeltaState(
        rng.standard_normal((LAYERS, SLOTS, VALUES, DK, DV)).astype(F32),
        unit(rng, LAYERS, SLOTS, WIDTH, KEYS, DK),
        rng.standard_normal((LAYERS, SLOTS, WIDTH, VALUES, DV)).astype(orders.BF16),
        gates,
    )


def assert_same_state(found: DeltaState, expected: DeltaState) -> None:
    for name in ("s", "k", "v", "gates"):
        assert_same_bits(getattr(found, name), getattr(expected, name))


MIXED = (Run(1, 7, 4, commits=False, replay=3), Run(0, 0, 5), Run(2, 33, 1, replay=1))
"""A verify segment after one whose three rows were accepted, a prompt's beginning, and a decode after a verify."""


@pytest.mark.parametrize("channels", [False, True], ids=["decay per head", "decay per channel"])
def test_a_ragged_batch_has_the_bits_of_the_written_order(kernels: Kernels, channels: bool) -> None:
    one, state = batch(*MIXED, padding=2, channels=channels), random_state(channels)
    o, after = one.run(kernels, state)
    expected_o, expected_after = one.expected(state)
    assert_same_bits(o, expected_o)
    assert_same_state(after, expected_after)
    assert not o[10:].any()
    assert np.abs(o[:10]).min(axis=(1, 2)).max() > 0


def rows_of(one: Batch, start: int, stop: int, run: Run) -> Batch:
    """Rows start to stop of a batch as a batch of their own."""
    part = batch(replace(run, count=stop - start))
    return replace(part, **{name: getattr(one, name)[start:stop] for name in ("q", "k", "v", "g", "beta")})


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_prompt_may_be_cut_anywhere(kernels: Kernels, cut: int) -> None:
    whole, state = batch(Run(1, 0, 8)), random_state()
    o, after = whole.run(kernels, state)
    left, middle = rows_of(whole, 0, cut, Run(1, 0, 0)).run(kernels, state)
    right, end = rows_of(whole, cut, 8, Run(1, cut, 0)).run(kernels, middle)
    assert_same_bits(np.concatenate([left, right]), o)
    assert_same_state(end, after)


@pytest.mark.parametrize("accepted", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("then", ["verify", "decode"])
def test_a_rollback_at_every_row_of_a_verify_leaves_no_trace(kernels: Kernels, accepted: int, then: str) -> None:
    whole = batch(Run(1, 0, 12))
    o, after = whole.run(kernels, random_state())
    _, state = rows_of(whole, 0, 5, Run(1, 0, 0)).run(kernels, random_state())
    wrong = batch(Run(1, 5, 4, commits=False), seed=77)
    right = rows_of(whole, 5, 9, Run(1, 5, 0, commits=False))
    mixed = {
        name: np.concatenate([getattr(right, name)[:accepted], getattr(wrong, name)[accepted:]])
        for name in ("q", "k", "v", "g", "beta")
    }
    _, drafted = replace(right, **mixed).run(kernels, state)
    assert_same_bits(drafted.s, state.s)  # nothing of a verify is committed
    at = 5 + accepted
    commits = then == "decode"
    rest, end = rows_of(whole, at, 12, Run(1, at, 0, commits=commits, replay=accepted)).run(kernels, drafted)
    assert_same_bits(rest, o[at:])
    if commits:
        assert_same_bits(end.s, after.s)


def test_committing_rows_may_come_before_others_in_a_segment(kernels: Kernels) -> None:
    one, state = batch(Run(0, 3, 6)), random_state()
    one = replace(one, commits=np.array([True] * 4 + [False] * 2))
    o, after = one.run(kernels, state)
    expected_o, expected_after = one.expected(state)
    assert_same_bits(o, expected_o)
    assert_same_state(after, expected_after)
    assert_same_bits(after.s, rows_of(one, 0, 4, Run(0, 3, 0)).run(kernels, state)[1].s)


def test_a_segment_at_position_zero_ignores_what_the_slot_had(kernels: Kernels) -> None:
    one = batch(Run(2, 0, 3))
    poisoned = jax.tree.map(lambda x: np.full_like(x, np.nan), random_state())
    o, after = one.run(kernels, poisoned)
    assert np.isfinite(o).all()
    assert np.isfinite(after.s[LAYER, 2]).all()
    assert np.isnan(after.s[LAYER, :2]).all()
    assert np.isnan(after.s[0]).all()


def test_a_state_without_rings_serves_where_every_row_commits(kernels: Kernels) -> None:
    one, state = batch(Run(0, 4, 3)), random_state()
    none = {name: getattr(state, name)[:, :, :0] for name in ("k", "v", "gates")}
    o, after = one.run(kernels, DeltaState(state.s, **none))
    assert_same_bits(o, one.run(kernels, state)[0])
    assert after.k.shape[2] == 0


def test_the_state_is_updated_where_it_lies_in_a_scan() -> None:
    """Neither the states nor the rings of all layers are copied, which would be once per layer."""
    gated_delta, one = select("reference").gated_delta, jax.tree.map(jnp.asarray, vars(batch(*MIXED)))
    replay = jnp.zeros(64, jnp.int32)

    def step(state: DeltaState) -> Any:
        def body(state: DeltaState, layer: jax.Array) -> Any:
            row = (one["q"], one["k"], one["v"], one["g"], one["beta"])
            rest = (one["position"], one["slot"], one["commits"], one["last"], replay, one["used"], KEY_INDEX)
            o, after = gated_delta(*row, state, layer, *rest, jnp.int32(0))
            return after, o

        return jax.lax.scan(body, state, jnp.arange(4, dtype=jnp.int32))

    state = jax.tree.map(lambda x: jnp.zeros((4, 64, *x.shape[2:]), x.dtype), random_state())
    compiled = jax.jit(step, donate_argnums=0).lower(state).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < state.s.nbytes // 4
    assert not re.search(r"\[4,64,[\d,]+\]\S* copy\(", compiled.as_text())
    place = state.s.unsafe_buffer_pointer()
    assert compiled(state)[0].s.unsafe_buffer_pointer() == place


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("q", np.zeros((10, KEYS), F32)),
        ("k", np.zeros((10, KEYS, DK), orders.BF16)),
        ("v", np.zeros((10, VALUES, DV + 1), orders.BF16)),
        ("g", np.zeros((10, VALUES + 1), F32)),
        ("beta", np.zeros((10, VALUES), orders.BF16)),
        ("commits", np.ones(10, np.int32)),
        ("replay", np.zeros(SLOTS + 1, np.int32)),
        ("used", np.float32(3)),
    ],
)
def test_wrong_arguments_are_named_while_tracing(kernels: Kernels, field: str, value: np.ndarray) -> None:
    one = replace(batch(*MIXED), **{field: value})
    with pytest.raises(ValueError, match=f"gated_delta: {field} "):
        one.run(kernels, random_state())
