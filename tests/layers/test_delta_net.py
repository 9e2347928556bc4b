"""The DeltaNet mixer against its equations in float64, and its bits under every way of feeding it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.kernels import select
from dgpp.kernels.leaves import folded
from dgpp.kernels.rows import Phase
from dgpp.kernels.stored import stored_as
from dgpp.layers.delta_net import SITES, STATE, delta_net
from dgpp.layers.taps import Taps
from dgpp.world import Single
from tests.layers.segments import SLOTS, Segment, f64, gaussian, layer_rows, leaves, same, weight
from tests.oracles import qwen
from tests.oracles.reading import held

D, K, V, DK, DV, WIDTH, VERIFY, CAPACITY, T = 48, 2, 6, 16, 16, 4, 4, 24, 20
NAMED = frozenset(f"delta.{site}" for site in SITES)
CHANNELS = 2 * K * DK + V * DV
KEY_INDEX = jnp.array([head * K // V for head in range(V)], jnp.int32)


@dataclass(frozen=True)
class Config:
    linear_num_key_heads: int = K
    linear_num_value_heads: int = V
    linear_key_head_dim: int = DK
    linear_value_head_dim: int = DV
    linear_conv_kernel_dim: int = WIDTH
    rms_norm_eps: float = 1e-6
    output_gate_type: str = "swish"


@cache
def tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "in_proj_qkv": gaussian(rng, CHANNELS, D, scale=D**-0.5),
        "in_proj_z": gaussian(rng, V * DV, D, scale=D**-0.5),
        "in_proj_a": gaussian(rng, V, D, scale=D**-0.5),
        "in_proj_b": gaussian(rng, V, D, scale=D**-0.5),
        "conv1d": gaussian(rng, CHANNELS, 1, WIDTH, scale=0.5),
        "A_log": gaussian(rng, V, scale=0.5),
        "dt_bias": gaussian(rng, V),
        "norm": 1 + gaussian(rng, DV, scale=0.1),
        "out_proj": gaussian(rng, D, V * DV, scale=0.1),
    }


INPUT = gaussian(np.random.default_rng(1), T, D)


def empty(stored: Any = jnp.bfloat16) -> dict[str, jax.Array]:
    """State of two layers whose content must not matter: the first is not touched, the second starts at position 0."""
    shapes = {
        "delta.s": ((SLOTS, V, DK, DV), jnp.float32),
        "delta.k": ((SLOTS, VERIFY, K, DK), jnp.float32),
        "delta.v": ((SLOTS, VERIFY, V, DV), stored),
        "delta.gates": ((SLOTS, VERIFY, V, 2), jnp.float32),
        "delta.conv": ((SLOTS, VERIFY + WIDTH - 1, CHANNELS), stored),
    }
    return {name: jnp.full((2, *shape), jnp.nan, dtype) for name, (shape, dtype) in shapes.items()}


@cache
def program(kernels: str, gate: str = "swish") -> Callable[..., Any]:
    """Compiled: (x, rows, state) -> (mixed, state, the activations inside)."""
    w = {name: weight(values, layers=3) for name, values in tensors().items()}
    stored = select(kernels).stored

    @jax.jit
    def run(x: jax.Array, rows: Any, state: Any) -> Any:
        taps = Taps(NAMED)
        with stored_as(stored):
            y, after = delta_net(
                Config(output_gate_type=gate), w, jnp.int32(2), x.astype(stored), rows, state, jnp.int32(1), KEY_INDEX,
                leaves(V * DV), Single(), select(kernels), taps,
            )  # fmt: skip
            y = folded(y)
        return y, after, taps.seen

    return run


def feed(
    state: Any, x: np.ndarray, segment: Segment, kernels: str = "reference", gate: str = "swish", tap: str = ""
) -> Any:
    """(the mixed rows of one segment, or the activation named by `tap`; the state)."""
    y, after, seen = program(kernels, gate)(*layer_rows(CAPACITY, x, segment), state)
    return np.asarray(seen[tap] if tap else y)[: len(x)], after


def exact(gate: str = "swish", **changed: np.ndarray) -> np.ndarray:
    """The equations in float64."""
    c = {**vars(Config()), "output_gate_type": gate}
    text = qwen.text(c, held({**tensors(), **changed}), range(T))
    return qwen.delta_net(text, f64(INPUT), "", gate)


@pytest.mark.parametrize("gate", ["swish", "sigmoid"])
def test_in_float32_the_mixer_is_its_equations(gate: str) -> None:
    y, _ = feed(empty(jnp.float32), INPUT, Segment(1, 0, T), "float32", gate=gate)
    assert np.abs(y - exact(gate)).max() < 2e-6 * np.abs(exact(gate)).max()


def test_in_bf16_it_stays_within_its_roundings() -> None:
    y, _ = feed(empty(), INPUT, Segment(1, 0, T))
    error = np.linalg.norm(f64(y) - exact()) / np.linalg.norm(exact())
    assert 1e-3 < error < 2e-2


def test_trap_output_gate_kind_is_seen_in_the_output() -> None:
    difference = np.linalg.norm(exact("swish") - exact("sigmoid")) / np.linalg.norm(exact())
    assert difference > 0.5


def test_trap_conv_tap_order_is_seen_in_the_output() -> None:
    turned = exact(conv1d=tensors()["conv1d"][..., ::-1])
    assert np.linalg.norm(turned - exact()) / np.linalg.norm(exact()) > 0.5


def test_the_native_linear_gives_the_bits_of_the_reference() -> None:
    native, plain = (feed(empty(), INPUT, Segment(1, 0, T), kernels) for kernels in ("cpu", "reference"))
    for a, b in zip(jax.tree.leaves(native), jax.tree.leaves(plain), strict=True):
        assert same(a, b)


@pytest.mark.parametrize("cuts", [(1,), (2, 3), (5, 9, 10, 11), tuple(range(1, T))])
def test_a_prompt_may_be_cut_inside_the_conv_window(cuts: tuple[int, ...]) -> None:
    whole, end = feed(empty(), INPUT, Segment(1, 0, T))
    parts, state = [], empty()
    for start, stop in zip((0, *cuts), (*cuts, T), strict=True):
        part, state = feed(state, INPUT[start:stop], Segment(1, start, stop - start, Phase.PREFILL))
        parts.append(part)
    assert same(np.concatenate(parts), whole)
    assert same(state["delta.s"][1, 1], end["delta.s"][1, 1])
    assert same(state["delta.conv"][1, 1], end["delta.conv"][1, 1])
    assert np.isnan(np.asarray(state["delta.s"])[0]).all()  # the other layer's


@pytest.mark.parametrize("accepted", range(VERIFY + 1))
def test_a_rollback_at_every_row_of_a_verify_leaves_no_trace(accepted: int) -> None:
    whole, end = feed(empty(), INPUT, Segment(1, 0, T))
    _, state = feed(empty(), INPUT[:8], Segment(1, 0, 8))
    wrong = gaussian(np.random.default_rng(9), VERIFY, D)
    drafted = np.concatenate([INPUT[8 : 8 + accepted], wrong[accepted:]])
    part, state = feed(state, drafted, Segment(1, 8, VERIFY, Phase.VERIFY))
    assert same(part[:accepted], whole[8 : 8 + accepted])
    at = 8 + accepted
    part, after = feed(state, INPUT[at : at + 3], Segment(1, at, 3, Phase.VERIFY, replay=accepted))
    assert same(part, whole[at : at + 3])
    part, after = feed(after, INPUT[at + 3 :], Segment(1, at + 3, T - at - 3, Phase.DECODE, replay=3))
    assert same(part, whole[at + 3 :])
    assert same(after["delta.s"][1, 1], end["delta.s"][1, 1])


def test_a_row_has_the_same_bits_whoever_else_is_in_the_batch() -> None:
    whole, _ = feed(empty(), INPUT, Segment(1, 0, T))
    other = gaussian(np.random.default_rng(5), 4, D)
    _, state = feed(empty(), INPUT[:6], Segment(1, 0, 6))
    _, state = feed(state, other, Segment(2, 0, 4))
    segments = (Segment(2, 4, 4, Phase.VERIFY), Segment(1, 6, 14), Segment(0, 0, 4))
    x = np.concatenate([other, INPUT[6:], other])
    y, _, _ = program("reference")(*layer_rows(CAPACITY, x, *segments), state)
    assert same(np.asarray(y)[4:18], whole[6:])


def test_a_step_of_one_row_has_the_bits_of_a_large_one() -> None:
    whole, _ = feed(empty(), INPUT, Segment(1, 0, T))
    _, state = feed(empty(), INPUT[:9], Segment(1, 0, 9))
    for row in range(9, 12):
        one = layer_rows(1, INPUT[row : row + 1], Segment(1, row, 1, Phase.DECODE))
        y, state, _ = program("reference")(*one, state)
        assert same(y[0], whole[row])


def test_padded_heads_of_a_rank_add_nothing() -> None:
    """A rank of which a leaf is short holds zero rows and columns for the head it does not have."""
    y, _ = feed(empty(), INPUT, Segment(1, 0, T))
    held_rows = {"in_proj_z", "in_proj_a", "in_proj_b", "A_log", "dt_bias"}
    w = {}
    for name, values in tensors().items():
        if name in held_rows:
            extra = DV if name == "in_proj_z" else 1
            values = np.pad(values, ((0, extra), *((0, 0) for _ in values.shape[1:])))
        elif name in ("in_proj_qkv", "conv1d"):
            values = np.pad(values, ((0, DV), *((0, 0) for _ in values.shape[1:])))
        elif name == "out_proj":
            values = np.pad(values, ((0, 0), (0, DV)))
        w[name] = weight(values)
    shapes = {name: (1, *x.shape[1:]) for name, x in empty().items()}
    shapes["delta.s"] = (1, SLOTS, V + 1, DK, DV)
    shapes["delta.v"] = (1, SLOTS, VERIFY, V + 1, DV)
    shapes["delta.gates"] = (1, SLOTS, VERIFY, V + 1, 2)
    shapes["delta.conv"] = (1, SLOTS, VERIFY + WIDTH - 1, CHANNELS + DV)
    state = {name: jnp.zeros(shape, empty()[name].dtype) for name, shape in shapes.items()}
    x, rows = layer_rows(CAPACITY, INPUT, Segment(1, 0, T))
    index = jnp.append(KEY_INDEX, 0).astype(jnp.int32)
    ranges = (*leaves(V * DV)[:3], (72, V * DV + DV))
    padded, after = jax.jit(
        lambda x, rows, state: delta_net(
            Config(), w, jnp.int32(0), x, rows, state, jnp.int32(0), index, ranges, Single(), select("reference"),
            Taps(),
        )
    )(x, rows, state)  # fmt: skip
    assert same(np.asarray(folded(padded))[:T], y)
    assert not np.asarray(after["delta.s"])[:, :, V].any()


def test_its_sites_and_state_are_the_ones_it_names() -> None:
    operands = (*layer_rows(CAPACITY, INPUT, Segment(1, 0, T)), empty())
    _, after, seen = jax.eval_shape(program("reference"), *operands)
    assert set(seen) == NAMED
    assert set(after) == set(STATE)
    assert {seen[f"delta.{site}"].dtype for site in ("q", "k", "g", "beta")} == {np.dtype(np.float32)}
    assert {seen[f"delta.{site}"].dtype for site in ("qkv", "conv", "v", "z", "o", "norm", "out")} == {INPUT.dtype}


def test_beta_is_the_float32_sigmoid_of_a_bf16_logit() -> None:
    beta, _ = feed(empty(), INPUT, Segment(1, 0, T), tap="delta.beta")
    logit = (f64(INPUT) @ f64(tensors()["in_proj_b"]).T).astype(np.float32)
    near = np.abs(beta - 1 / (1 + np.exp(-f64(logit.astype(INPUT.dtype)))))
    assert np.median(near) < 1e-7
    assert (beta != beta.astype(INPUT.dtype).astype(np.float32)).mean() > 0.9


def test_the_decay_is_made_in_float32_from_float32_exponentials() -> None:
    g, _ = feed(empty(), INPUT, Segment(1, 0, T), tap="delta.g")
    a = (f64(INPUT) @ f64(tensors()["in_proj_a"]).T).astype(np.float32).astype(INPUT.dtype)
    step = f64(a) + f64(tensors()["dt_bias"])
    wanted = -np.exp(f64(tensors()["A_log"])) * np.logaddexp(0, step)
    assert (g <= 0).all()
    assert np.median(np.abs(g / wanted - 1)) < 1e-6
