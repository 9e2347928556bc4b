"""Gated attention, dense and over selected blocks, against its equations in float64 and under every way of feeding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dgpp.kernels import select
from dgpp.kernels.leaves import folded
from dgpp.kernels.rows import Phase
from dgpp.kernels.stored import stored_as
from dgpp.layers import gated_attention as dense
from dgpp.layers import sparse_attention as sparse
from dgpp.layers.rope import Rope
from dgpp.layers.taps import Taps
from dgpp.world import Single
from tests.layers.segments import PAGE, SLOTS, Segment, f64, gaussian, layer_rows, leaves, same, weight
from tests.oracles import qwen
from tests.oracles.reading import held

D, H, K, DH, HEADS, DI, BLOCK, BUDGET, VERIFY, T, CAPACITY = 48, 4, 2, 32, 2, 32, 4, 8, 4, 40, 44
LAYERS = 2
ROPE = {"rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
TABLES = tuple(map(jnp.asarray, Rope.from_config({"rope_parameters": ROPE}, DH, 512).table(200)))
NAMED = frozenset({f"index.{site}" for site in sparse.SITES} | {f"attn.{site}" for site in dense.SITES})
KV_INDEX = jnp.array([0, 0, 1, 1], jnp.int32)


@dataclass(frozen=True)
class Config:
    head_dim: int = DH
    rms_norm_eps: float = 1e-6
    indexer_head_dim: int = DI
    indexer_budget: int = BUDGET
    indexer_compress_ratio: int = BLOCK


@cache
def tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"q_proj": (2 * H * DH, D), "k_proj": (K * DH, D), "v_proj": (K * DH, D), "o_proj": (D, H * DH)}
    shapes["indexer.index_qk_proj"] = ((HEADS + 1) * DI, D)
    found = {name: gaussian(rng, *shape, scale=1.5 * shape[1] ** -0.5) for name, shape in shapes.items()}
    norms = {"q_norm": DH, "k_norm": DH, "indexer.q_layernorm": DI, "indexer.k_layernorm": DI}
    return found | {name: gaussian(rng, size, scale=0.2) for name, size in norms.items()}


INPUT = gaussian(np.random.default_rng(1), T, D)


def empty(stored: Any = jnp.bfloat16) -> dict[str, jax.Array]:
    pages = SLOTS * 8
    shapes = {
        "k": ((pages, PAGE, K, DH), stored),
        "v": ((pages, PAGE, K, DH), stored),
        "index": ((pages, PAGE // BLOCK, DI), stored),
        "index_raw": ((SLOTS, BLOCK - 1 + VERIFY, DI), stored),
    }
    state = {name: jnp.full((LAYERS, *shape), jnp.nan, dtype) for name, (shape, dtype) in shapes.items()}
    return state | {"index_rope": jnp.full((LAYERS, SLOTS, BLOCK - 1 + VERIFY, 3), 77, jnp.int32)}


@cache
def program(kernels: str, selecting: bool, budget: int = BUDGET) -> Callable[..., Any]:
    """Compiled: (x, rows, state) -> (mixed, state, the activations inside)."""
    flat = {name: weight(values, layers=3) for name, values in tensors().items()}
    w: dict[str, Any] = {name: x for name, x in flat.items() if "." not in name}
    w["indexer"] = {name.removeprefix("indexer."): x for name, x in flat.items() if "." in name}
    k, rope = select(kernels), Rope.from_config({"rope_parameters": ROPE}, DH, 512)
    angles = partial(rope.angles, *TABLES)

    @jax.jit
    def run(x: jax.Array, rows: Any, state: Any) -> Any:
        taps, c = Taps(NAMED), Config(indexer_budget=budget)
        rest = (rows, state, jnp.int32(1), KV_INDEX, leaves(H * DH), Single(), k, taps)
        with stored_as(k.stored):
            x = x.astype(k.stored)
            if selecting:
                y, after = sparse.sparse_attention(c, w, jnp.int32(2), x, angles, *rest)
            else:
                y, after = dense.gated_attention(c, w, jnp.int32(2), x, angles(rows.rope), *rest)
            y = folded(y)
        return y, after, taps.seen

    return run


def feed(
    state: Any, x: np.ndarray, segment: Segment, kernels: str = "reference", selecting: bool = True, **kind: Any
) -> Any:
    """(the mixed rows of one segment, or the activation named by `tap`; the state)."""
    tap = kind.pop("tap", "")
    y, after, seen = program(kernels, selecting, **kind)(*layer_rows(CAPACITY, x, segment), state)
    return np.asarray(seen[tap] if tap else y)[: len(x)], after


def exact(selecting: bool, rope: np.ndarray | None = None, **chosen: np.ndarray) -> np.ndarray:
    """The equations in float64, over the blocks `chosen` or the best ones."""
    c = {**vars(Config()), "rope_parameters": ROPE, "indexer_n_heads": HEADS}
    text = qwen.text(c, held(tensors()), range(T), rope, chosen=chosen)
    seen = qwen.visible(text, f64(INPUT), "indexer.", "") if selecting else None
    return qwen.attention(text, f64(INPUT), "", seen)


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(f64(found) - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("selecting", [True, False], ids=["sparse", "dense"])
def test_in_float32_the_mixer_is_its_equations(selecting: bool) -> None:
    y, _ = feed(empty(jnp.float32), INPUT, Segment(1, 0, T), "float32", selecting)
    assert error(y, exact(selecting)) < 1e-6
    assert error(exact(True), exact(False)) > 0.1  # the budget matters


@pytest.mark.parametrize("selecting", [True, False], ids=["sparse", "dense"])
def test_in_bf16_it_stays_within_its_roundings(selecting: bool) -> None:
    """Judged over the blocks that the run itself selected: a rounding may tip a choice between close scores."""
    y, _ = feed(empty(), INPUT, Segment(1, 0, T), "cpu", selecting)
    blocks, _ = feed(empty(), INPUT, Segment(1, 0, T), tap="index.blocks")
    assert 1e-3 < error(y, exact(selecting, **{"index.blocks": blocks})) < 1.5e-2


def test_within_the_budget_the_bits_are_those_of_dense_attention() -> None:
    chosen, _ = feed(empty(), INPUT, Segment(1, 0, T), budget=T)
    for kernels in ("reference", "cpu"):
        assert same(chosen, feed(empty(), INPUT, Segment(1, 0, T), kernels, False)[0])
    limited, _ = feed(empty(), INPUT, Segment(1, 0, T))
    seen = BUDGET + BLOCK - 1  # up to here two blocks and the tail are all there is
    assert same(chosen[:seen], limited[:seen])
    assert not same(chosen[seen:], limited[seen:])


@pytest.mark.parametrize("cuts", [(1,), (2, 3), (5, 6, 7), (15, 16, 17), (31, 33), tuple(range(1, T))])
def test_a_prompt_may_be_cut_inside_a_block_and_around_a_page(cuts: tuple[int, ...]) -> None:
    whole, end = feed(empty(), INPUT, Segment(1, 0, T))
    parts, state = [], empty()
    for start, stop in zip((0, *cuts), (*cuts, T), strict=True):
        part, state = feed(state, INPUT[start:stop], Segment(1, start, stop - start))
        parts.append(part)
    assert same(np.concatenate(parts), whole)
    for name in end:
        assert same(state[name], end[name])


def test_a_step_of_one_row_has_the_bits_of_a_large_one() -> None:
    whole, _ = feed(empty(), INPUT, Segment(1, 0, T))
    _, state = feed(empty(), INPUT[:30], Segment(1, 0, 30))
    for row in range(30, 34):
        one = layer_rows(1, INPUT[row : row + 1], Segment(1, row, 1, Phase.DECODE))
        y, state, _ = program("reference", True)(*one, state)
        assert same(y[0], whole[row])


@pytest.mark.parametrize("accepted", range(VERIFY + 1))
@pytest.mark.parametrize("start", [16, 17, 18, 19])
def test_a_rollback_at_every_row_of_a_verify_leaves_no_trace(start: int, accepted: int) -> None:
    """Also where a rejected row had completed a block."""
    whole, _ = feed(empty(), INPUT, Segment(1, 0, T))
    _, state = feed(empty(), INPUT[:start], Segment(1, 0, start))
    wrong = gaussian(np.random.default_rng(9), VERIFY, D)
    drafted = np.concatenate([INPUT[start : start + accepted], wrong[accepted:]])
    part, state = feed(state, drafted, Segment(1, start, VERIFY, Phase.VERIFY))
    assert same(part[:accepted], whole[start : start + accepted])
    at = start + accepted
    part, _ = feed(state, INPUT[at:], Segment(1, at, T - at, Phase.DECODE))
    assert same(part, whole[at:])


def test_a_block_takes_the_three_axes_of_its_first_token() -> None:
    """Rope positions are not cache positions: an image's tokens share a temporal one."""
    rng = np.random.default_rng(4)
    rope = np.sort(rng.integers(0, 60, (T, 3)), axis=0)
    y, state = [], empty(jnp.float32)
    for start, stop in ((0, 6), (6, 7), (7, 21), (21, T)):  # a block's first token is often in an earlier step
        x, rows = layer_rows(CAPACITY, INPUT[start:stop], Segment(1, start, stop - start))
        fill = ((0, CAPACITY - (stop - start)), (0, 0))
        rows = replace(rows, rope=jnp.asarray(np.pad(rope[start:stop], fill), jnp.int32))
        part, state, _ = program("float32", True)(x, rows, state)
        y.append(np.asarray(part)[: stop - start])
    assert error(np.concatenate(y), exact(True, rope)) < 1e-6
    assert error(exact(True), exact(True, rope)) > 0.1


def test_trap_each_head_of_q_proj_has_its_queries_before_its_gates() -> None:
    gate, _ = feed(empty(), INPUT, Segment(1, 0, T), selecting=False, tap="attn.gate")
    rows = f64(tensors()["q_proj"]).reshape(H, 2, DH, D)
    assert np.abs(f64(gate) - np.einsum("td,hkd->thk", f64(INPUT), rows[:, 1])).max() < 0.05


def test_scores_of_blocks_have_no_weights_per_head() -> None:
    scores, _ = feed(empty(jnp.float32), INPUT, Segment(1, 0, T), "float32", tap="index.scores")
    q, _ = feed(empty(jnp.float32), INPUT, Segment(1, 0, T), "float32", tap="index.q")
    key, _ = feed(empty(jnp.float32), INPUT, Segment(1, 0, T), "float32", tap="index.key")
    wanted = np.maximum(np.einsum("hd,bd->hb", f64(q[30]), f64(key[3:31:4])), 0).sum(0) / np.sqrt(DI)
    assert np.abs(scores[30, :7] - wanted).max() < 1e-5
    assert np.isneginf(scores[30, 7:]).all()


def test_its_sites_and_state_are_the_ones_it_names() -> None:
    operands = (*layer_rows(CAPACITY, INPUT, Segment(1, 0, T)), empty())
    _, after, seen = jax.eval_shape(program("reference", True), *operands)
    assert set(seen) == NAMED
    assert set(after) == set(sparse.STATE)
    _, _, seen = jax.eval_shape(program("reference", False), *operands)
    assert set(seen) == {name for name in NAMED if name.startswith("attn.")}
