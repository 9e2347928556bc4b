"""The chunked form of the delta rule: near the step form, and the step form itself where it does not apply."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.kernels.recurrence import DeltaState, chunked, reference
from dgpp.kernels.rows import Phase
from dgpp.models.qwen35 import FAMILY as QWEN35
from tests.models.qwen import directory_of

KEYS, VALUES, DIM, WIDTH, SLOTS = 2, 4, 16, 4, 4


def batch(segments: list[tuple[int, int, int, Phase]], rows: int, seed: int = 0) -> tuple[dict[str, Any], DeltaState]:
    """Arguments for segments of (slot, start, count, phase), over random states and rings."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (normal(rows, KEYS, DIM), normal(rows, KEYS, DIM)))
    position, slot, last = (np.full(rows, -1, np.int32), np.full(rows, -1, np.int32), np.arange(rows, dtype=np.int32))
    commits, used = np.zeros(rows, bool), 0
    for number, start, count, phase in segments:
        part = slice(used, used + count)
        position[part], slot[part] = np.arange(start, start + count), number
        last[part], commits[part] = used + count - 1, phase != Phase.VERIFY
        used += count
    arguments = {
        "q": q,
        "k": k,
        "v": jnp.asarray(normal(rows, VALUES, DIM), jnp.bfloat16),
        "g": -np.abs(normal(rows, VALUES)) / 8,
        "beta": 1 / (1 + np.exp(-normal(rows, VALUES))),
        "position": position,
        "slot": slot,
        "commits": commits,
        "last": last,
        "replay": np.array([0, 0, 2, 0], np.int32),
        "used": np.int32(used),
        "key_index": np.arange(VALUES, dtype=np.int32) * KEYS // VALUES,
    }
    ring = normal(2, SLOTS, WIDTH, KEYS, DIM)
    gates = np.stack([-np.abs(normal(2, SLOTS, WIDTH, VALUES)), np.full((2, SLOTS, WIDTH, VALUES), 0.5)], -1)
    state = DeltaState(
        normal(2, SLOTS, VALUES, DIM, DIM) / 4,
        ring / np.linalg.norm(ring, axis=-1, keepdims=True),
        jnp.asarray(normal(2, SLOTS, WIDTH, VALUES, DIM), jnp.bfloat16),
        gates.astype(np.float32),
    )
    return jax.tree.map(jnp.asarray, arguments), jax.tree.map(jnp.asarray, state)


def both(segments: list[tuple[int, int, int, Phase]], rows: int) -> list[tuple[np.ndarray, DeltaState]]:
    arguments, state = batch(segments, rows)
    return [
        jax.jit(form.gated_delta)(state=state, layer=jnp.int32(1), zero=jnp.int32(0), **arguments)
        for form in (reference, chunked)
    ]


def distance(found: Any, expected: Any) -> float:
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def test_long_prefills_are_near_the_step_form_and_all_else_is_the_step_form() -> None:
    segments = [
        (0, 0, 100, Phase.PREFILL),  # two chunks, the second not full
        (1, 7, 1, Phase.DECODE),
        (2, 9, 64, Phase.PREFILL),  # goes on after two rows that are replayed
        (3, 5, 3, Phase.VERIFY),
    ]
    (o, state), (found, after) = both(segments, 192)
    long = np.r_[0:100, 101:165]
    assert distance(found[long], o[long]) < 1e-5
    assert distance(after.s[1, [0, 2]], state.s[1, [0, 2]]) < 1e-5
    assert not np.array_equal(found[long], o[long])
    short = np.r_[100, 165:168]
    np.testing.assert_array_equal(found[short], o[short])
    np.testing.assert_array_equal(after.s[1, [1, 3]], state.s[1, [1, 3]])
    np.testing.assert_array_equal(after.s[0], state.s[0])
    assert not np.asarray(found[168:]).any()
    for ring in ("k", "v", "gates"):
        np.testing.assert_array_equal(getattr(after, ring), getattr(state, ring))


def test_a_batch_without_long_segments_has_the_bits_of_the_step_form() -> None:
    (o, state), (found, after) = both([(0, 0, 40, Phase.PREFILL), (1, 3, 8, Phase.PREFILL)], 64)
    np.testing.assert_array_equal(found, o)
    np.testing.assert_array_equal(after.s, state.s)


def test_a_decay_per_channel_is_refused() -> None:
    arguments, state = batch([(0, 0, 64, Phase.PREFILL)], 64)
    arguments["g"] = jnp.zeros((64, VALUES, DIM))
    with pytest.raises(ValueError, match="one decay per head is supported"):
        chunked.gated_delta(state=state, layer=jnp.int32(0), zero=jnp.int32(0), **arguments)


def test_the_lever_reads_a_prompt_in_chunks_and_is_refused_without_delta_net() -> None:
    from dgpp.engine.options import ModelOptions, OptionsError
    from dgpp.lab.model import load
    from tests.tiny import tokens

    layout: dict[str, Any] = {"slots": 1, "pool_tokens": 128, "page_tokens": 16, "row_families": (96,)}
    directory = str(directory_of(QWEN35.name, "tiny-dense"))
    step = load(directory, **layout).forward(tokens(90)).logits
    found = load(directory, options=ModelOptions(delta_form="chunked"), **layout).forward(tokens(90)).logits
    assert 0 < distance(found, step) < 0.05
    with pytest.raises(OptionsError, match="delta_form is not supported by family llama"):
        load(options=ModelOptions(delta_form="chunked"), **layout)
