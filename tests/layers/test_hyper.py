from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.kernels import select
from dgpp.kernels.stored import stored_as
from dgpp.layers.hyper import SITES, feed_branches, mix_branches, spread_branches
from dgpp.layers.taps import Taps
from tests.layers.segments import BF16, Segment, f64, gaussian, layer_rows, same, weight
from tests.oracles import qwen
from tests.oracles.reading import held

D, COUNT, LOW, T, CAPACITY = 24, 4, 16, 12, 16
WIDE = COUNT * D
BRANCHES = gaussian(np.random.default_rng(1), T, WIDE) * np.repeat([0.2, 1, 3, 1], D).astype(BF16)


@cache
def tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"input_mix_weight_down": (LOW, WIDE), "input_mix_weight_up": (WIDE, LOW)}
    shapes["block_inject_weight"] = (COUNT, WIDE)
    found = {name: gaussian(rng, *shape, scale=2 * shape[1] ** -0.5) for name, shape in shapes.items()}
    return found | {"hc_norm": gaussian(rng, WIDE, scale=0.3)}


@cache
def mixed(kernels: str, layers: int = 2, inject: bool = True) -> tuple[np.ndarray, np.ndarray | None, dict[str, Any]]:
    """(x, s, activations) of the branches; the weights are the last of `layers`, or not stacked."""
    k = select(kernels)
    w = {name: weight(values, max(1, layers)) for name, values in tensors().items()}
    if not layers:
        w = {name: type(x)({"values": x.arrays["values"][0]}, x.format, x.shape) for name, x in w.items()}
    if not inject:
        del w["block_inject_weight"]

    def run(x: jax.Array, rows: Any) -> Any:
        taps = Taps(frozenset(f"attn_hyper.{site}" for site in SITES))
        with stored_as(k.stored):
            args = (COUNT, 1e-6, rows, k, taps, "attn_hyper")
            found = mix_branches(w, jnp.int32(max(0, layers - 1)), x.astype(k.stored), *args)
        return *found, taps.seen

    x, s, seen = jax.jit(run)(*layer_rows(CAPACITY, BRANCHES, Segment(0, 0, T)))
    return np.asarray(x)[:T], None if s is None else np.asarray(s)[:T], seen


def exact() -> tuple[np.ndarray, np.ndarray]:
    text = qwen.text({"hc_count": COUNT, "rms_norm_eps": 1e-6}, held(tensors()), range(T))
    return qwen.mix(text, f64(BRANCHES), "")


def test_in_float32_the_mix_is_its_equations() -> None:
    x, s, _ = mixed("float32")
    assert np.abs(x - exact()[0]).max() < 1e-6
    assert np.abs(s - exact()[1]).max() < 1e-6


def test_in_bf16_it_stays_within_its_roundings() -> None:
    x, s, seen = mixed("reference")
    assert s is not None
    for found, wanted in zip((x, s), exact(), strict=True):
        error = np.linalg.norm(f64(found) - wanted) / np.linalg.norm(wanted)
        assert 1e-4 < error < 1e-2
    assert set(seen) == {f"attn_hyper.{site}" for site in SITES}
    assert {value.dtype for value in (x, s, *seen.values())} == {BF16}


def test_native_reference_stacked_and_not_have_the_same_bits() -> None:
    x, s, _ = mixed("reference")
    for other in (mixed("cpu"), mixed("reference", 0)):
        assert same(other[0], x)
        assert same(other[1], s)


def test_the_last_mixer_only_mixes() -> None:
    x, s, _ = mixed("reference", 0, False)
    assert s is None
    assert same(x, mixed("reference")[0])


def test_trap_x_mixes_normed_branches_and_the_feedback_takes_raw_ones() -> None:
    x, s, seen = mixed("reference")
    normed = f64(seen["attn_hyper.norm"])[:T].reshape(T, COUNT, D)
    assert (np.abs(f64(x)) <= np.abs(normed).mean(1) * (1 + 2**-6) + 1e-3).all()  # gates are at most 1
    y = gaussian(np.random.default_rng(3), T, D)
    fed = f64(jax.jit(feed_branches)(BRANCHES, s, y)).reshape(T, COUNT, D)
    wanted = f64(BRANCHES).reshape(T, COUNT, D) + f64(s)[:, :, None] * f64(y)[:, None]
    assert np.abs(fed - wanted).max() < 2**-7 * np.abs(wanted).max()
    assert np.abs(fed - normed - f64(s)[:, :, None] * f64(y)[:, None]).max() > 1


def test_the_feedback_rounds_the_product_and_the_sum() -> None:
    rng = np.random.default_rng(4)
    s, y = gaussian(rng, T, COUNT), gaussian(rng, T, D)
    product = (s.astype(np.float32)[:, :, None] * y.astype(np.float32)[:, None]).astype(BF16)
    wanted = (BRANCHES.reshape(T, COUNT, D).astype(np.float32) + product.astype(np.float32)).astype(BF16)
    assert same(jax.jit(feed_branches)(BRANCHES, s, y), wanted.reshape(T, WIDE))


def test_branches_start_as_copies() -> None:
    x = gaussian(np.random.default_rng(5), 3, D)
    assert same(np.asarray(spread_branches(jnp.asarray(x), COUNT)).reshape(3, COUNT, D), np.stack([x] * COUNT, 1))
