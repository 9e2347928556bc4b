from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.checkpoint.spec import nested
from dgpp.kernels import select
from dgpp.kernels.leaves import folded
from dgpp.kernels.stored import stored_as
from dgpp.layers.moe import SITES, moe
from dgpp.layers.taps import Taps
from dgpp.world import Single
from tests.layers.segments import BF16, Segment, f64, gaussian, layer_rows, leaves, same, weight
from tests.oracles import qwen
from tests.oracles.reading import held

D, E, INNER, SHARED, TOP, T, CAPACITY = 48, 8, 32, 48, 3, 20, 24
NAMED = frozenset(f"moe.{site}" for site in SITES)


@cache
def tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {
        "gate": (E, D),
        "experts.gate_up_proj": (E, 2 * INNER, D),
        "experts.down_proj": (E, D, INNER),
        "shared_expert.gate_proj": (SHARED, D),
        "shared_expert.up_proj": (SHARED, D),
        "shared_expert.down_proj": (D, SHARED),
        "shared_expert_gate": (1, D),
    }
    return {name: gaussian(rng, *shape, scale=1.5 * shape[-1] ** -0.5) for name, shape in shapes.items()}


INPUT = gaussian(np.random.default_rng(1), T, D)


def tree_of(fused: bool = True) -> dict[str, Any]:
    """The weights as the layer takes them, experts' gate and up fused or apart."""
    flat = dict(tensors())
    if not fused:
        both = flat.pop("experts.gate_up_proj")
        flat |= {"experts.gate_proj": both[:, :INNER], "experts.up_proj": both[:, INNER:]}
    return nested((name, weight(values, layers=2)) for name, values in flat.items())


@cache
def program(kernels: str, fused: bool = True) -> Callable[..., Any]:
    """Compiled: (x, rows) -> (mixture, the activations inside)."""
    k, w = select(kernels), tree_of(fused)

    @jax.jit
    def run(x: jax.Array, rows: Any) -> Any:
        taps = Taps(NAMED)
        with stored_as(k.stored):
            args = (rows, leaves(INNER), leaves(SHARED), Single(), k, taps)
            y = folded(moe(w, jnp.int32(1), x.astype(k.stored), TOP, *args))
        return y, taps.seen

    return run


def mixture(x: np.ndarray, kernels: str = "reference", fused: bool = True, tap: str = "") -> np.ndarray:
    """The rows of one segment, or the activation named by `tap`."""
    y, seen = program(kernels, fused)(*layer_rows(CAPACITY, x, Segment(0, 0, len(x))))
    return np.asarray(seen[tap] if tap else y)[: len(x)]


def exact(**chosen: np.ndarray) -> np.ndarray:
    c = {"num_experts_per_tok": TOP}
    return qwen.moe(qwen.text(c, held(tensors()), range(T), chosen=chosen), f64(INPUT), "", "")


def test_in_float32_the_mixture_is_its_equations() -> None:
    assert np.abs(mixture(INPUT, "float32") - exact()).max() < 2e-6 * np.abs(exact()).max()


def test_in_bf16_it_stays_within_its_roundings() -> None:
    wanted = exact(**{"moe.experts": mixture(INPUT, tap="moe.experts")})
    error = np.linalg.norm(f64(mixture(INPUT)) - wanted) / np.linalg.norm(wanted)
    assert 1e-3 < error < 2e-2


def test_fused_and_separate_experts_have_the_same_bits() -> None:
    assert same(mixture(INPUT), mixture(INPUT, fused=False))


def test_the_native_linear_gives_the_bits_of_the_reference() -> None:
    assert same(mixture(INPUT), mixture(INPUT, "cpu"))


def test_a_row_has_the_same_bits_whoever_else_is_in_the_batch() -> None:
    whole = mixture(INPUT)
    for row in (0, 7, 19):
        assert same(mixture(INPUT[row : row + 1])[0], whole[row])


def test_a_step_of_one_row_has_the_bits_of_a_large_one() -> None:
    y, _ = program("reference")(*layer_rows(1, INPUT[7:8], Segment(0, 0, 1)))
    assert same(y[0], mixture(INPUT)[7])


def test_trap_router_logits_are_rounded_before_the_choice() -> None:
    seen = mixture(INPUT, tap="moe.logits")
    assert seen.dtype == BF16
    picked = np.sort(np.argsort(-f64(seen), axis=-1, kind="stable")[:, :TOP], axis=-1)
    assert (mixture(INPUT, tap="moe.experts") == picked).all()


def test_experts_are_added_in_ascending_order_then_the_shared_one_and_rounded_once_a_leaf() -> None:
    k, tree = select("reference"), tree_of()
    x, rows = layer_rows(CAPACITY, INPUT, Segment(0, 0, T))
    names = ("experts", "weights", "act", "shared_act", "shared_weight")
    y, seen = program("reference")(x, rows)
    experts, weights, act, shared_act, share = (seen[f"moe.{name}"] for name in names)
    one, used = jnp.int32(1), rows.used
    each = np.asarray(k.grouped_linear_leaves(act, experts, tree["experts"]["down_proj"], one, used, leaves(INNER)))
    total = np.zeros((4, CAPACITY, D), np.float32)
    for j in range(TOP):
        total = total + each[:, :, j] * np.asarray(weights).astype(np.float32)[:, j, None]
    shared = np.asarray(k.linear_leaves(shared_act, tree["shared_expert"]["down_proj"], one, used, leaves(SHARED)))
    total = total + shared * np.asarray(share).astype(np.float32)
    assert same(folded(jnp.asarray(total))[:T], y[:T])


def test_the_activation_has_the_two_roundings_of_the_reference_experts() -> None:
    act, experts = mixture(INPUT, tap="moe.act"), mixture(INPUT, tap="moe.experts")
    both = f64(tensors()["experts.gate_up_proj"])[experts[4, 1]] @ f64(INPUT[4])
    gate, up = (part.astype(np.float32).astype(BF16).astype(np.float32) for part in np.split(both, 2))
    silu = (gate / (1 + np.exp(-gate))).astype(BF16).astype(np.float32)
    assert (act[4, 1] == (silu * up).astype(BF16)).mean() > 0.9


def test_its_sites_are_the_ones_it_names() -> None:
    _, seen = jax.eval_shape(program("reference"), *layer_rows(CAPACITY, INPUT, Segment(0, 0, T)))
    assert set(seen) == NAMED
