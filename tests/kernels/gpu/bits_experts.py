"""On a GPU: the experts' ops pair by pair against the linear of the same kind, at any number of rows, and route.

    python -m tests.kernels.gpu.bits_experts [FORMAT ... | route]

Prints a line a case and exits with 1 when one fails.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.experts import choice
from bench.random_weights import random_experts
from dgpp.formats import Weight, format_named
from dgpp.kernels import Kernels, select
from dgpp.kernels.gated.reference import swiglu_bf16
from dgpp.kernels.linear.triton_recipe import recipe
from dgpp.kernels.route.reference import route as reference_route
from tests.kernels.gpu.between import normal
from tests.kernels.gpu.formats import bound

FORMATS = ("bf16", "fp8_block128_bf16", "fp8_channel", "nvfp4", "nvfp4_divisor", "mxfp4_deepseek", "mxfp8", "int4_g64")
COUNTS = (1, 2, 3, 8, 16, 17, 33, 64, 300, 2048)
HELD, CHOSEN, D, INNER = 40, 4, 1280, 384
LEAVES = tuple((i * INNER // 4, (i + 1) * INNER // 4) for i in range(4))
I32 = jnp.int32


def same(a: Any, b: Any) -> bool:
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def flat(w: Weight) -> Weight:
    """The experts of all layers as so many layers of one matrix."""
    arrays = {name: a.reshape(-1, *a.shape[2:]) for name, a in w.arrays.items()}
    return Weight(arrays, w.format, w.shape[1:])


def pairs(kernels: Kernels, format: str) -> list[str]:
    """Every pair beside a linear of its own, and beside float64."""
    gate, up = (random_experts(format, 2, HELD, INNER, D, seed) for seed in (0, 1))
    down = random_experts(format, 2, HELD, D, INNER, 2)
    rows, trouble = max(COUNTS), []
    x = jax.random.normal(jax.random.key(1), (rows, D), jnp.float32).astype(jnp.bfloat16)
    x = x.at[3].multiply(2.0**-60).at[5].multiply(2.0**60)
    act = jax.random.normal(jax.random.key(2), (rows, CHOSEN, INNER), jnp.float32).astype(jnp.bfloat16)
    weights = jax.random.uniform(jax.random.key(3), (rows, CHOSEN)).astype(jnp.bfloat16)
    experts, layer, zero = choice(rows, HELD, CHOSEN, 0).at[7, 0].set(-1).at[8, 3].set(HELD), I32(1), I32(0)
    for w, ranges in ((gate, ((0, D),)), (down, LEAVES)):
        if recipe(format_named(format), ranges, w.shape[-1]) is None:
            trouble.append(f"no recipe for {w.shape}")

    @jax.jit
    def run(x: jax.Array, act: jax.Array, experts: jax.Array, weights: jax.Array, used: jax.Array) -> list[jax.Array]:
        return [
            kernels.grouped_linear(x, experts, gate, layer, used),
            kernels.grouped_linear(x, experts, up, layer, used),
            kernels.grouped_linear_leaves(act, experts, down, layer, used, LEAVES),
            kernels.grouped_gated(x, experts, (gate, up), (layer, layer), used, zero),
            kernels.grouped_down(act, experts, weights, down, layer, used, LEAVES, zero),
        ]

    names = ("gate", "up", "leaves", "gated", "down")
    axes = (0, 0, 1, 0, 1)
    whole = [np.asarray(y) for y in run(x, act, experts, weights, I32(rows))]
    everything = dict(zip(names, whole, strict=True))
    for count in COUNTS:
        some = run(x[:count], act[:count], experts[:count], weights[:count], I32(count))
        for name, axis, y in zip(names, axes, some, strict=True):
            if not same(y, everything[name].take(range(count), axis)):
                trouble.append(f"{name} differs at {count} rows")
    back = slice(63, None, -1)
    some = run(x[back], act[back], experts[back], weights[back], I32(60))
    for name, axis, y in zip(names, axes, some, strict=True):
        y = np.asarray(y)
        if not same(y.take(range(60), axis), everything[name].take(range(63, 3, -1), axis)):
            trouble.append(f"{name} differs in another order")
        if y.take(range(60, 64), axis).astype(np.float32).any():
            trouble.append(f"{name} is not zero for padding")

    alone = jax.jit(kernels.linear)
    alone_leaves = jax.jit(partial(kernels.linear_leaves, ranges=LEAVES))
    one, worst = I32(1), 0.0
    for row in range(24):
        for j, expert in enumerate(np.asarray(experts[row])):
            found = {name: everything[name][row, j] for name in ("gate", "up")}
            found["leaves"] = everything["leaves"][:, row, j]
            if not 0 <= expert < HELD:
                trouble += [f"{name} of an expert not here" for name, y in found.items() if y.any()]
                continue
            place = I32(HELD + int(expert))
            wanted = {name: alone(x[row, None], flat(w), place, one)[0] for name, w in (("gate", gate), ("up", up))}
            wanted["leaves"] = alone_leaves(act[row, j, None], flat(down), place, one)[:, 0]
            trouble += [f"{name} of row {row}" for name in wanted if not same(found[name], wanted[name])]
            matrix = {name: np.asarray(v)[1, expert] for name, v in gate.arrays.items()}
            values = format_named(format).decode64(matrix, (INNER, D))
            exact = np.asarray(x[row], np.float64)
            error = np.abs(found["gate"] - values @ exact) / (np.abs(values) @ np.abs(exact))
            worst = max(worst, float(error.max()))
    if not 0 < worst < bound(format, D):
        trouble.append(f"error {worst:.1e} is above {bound(format, D):.1e}")

    with jax.default_device(jax.devices("cpu")[0]):
        wanted_act = jax.jit(swiglu_bf16)(everything["gate"], everything["up"], np.int32(0))
    if different := int(np.sum(normal(wanted_act) != normal(everything["gated"]))):
        trouble.append(f"{different} of the activation have not the bits of the reference")
    total: Any = np.zeros((len(LEAVES), rows, D), np.float32)
    for j in range(CHOSEN):
        total = total + everything["leaves"][:, :, j] * np.asarray(weights, np.float32)[:, j, None]
    if not same(total, everything["down"]):
        trouble.append("the fold has not the bits of its sum")
    try:
        both = format_named(format).concatenate([gate.arrays, up.arrays], [gate.shape] * 2, 1)
    except ValueError:  # of two global scales
        return trouble
    fused = Weight({name: jnp.asarray(a) for name, a in both.items()}, format, (HELD, 2 * INNER, D))
    for count in (1, 64, 2048):
        y = kernels.grouped_gated(x[:count], experts[:count], (fused,), (layer,), I32(count), zero)
        if not same(y, everything["gated"][:count]):
            trouble.append(f"gate and up in one differ at {count} rows")
    return trouble


def route_case(kernels: Kernels) -> list[str]:
    """The bits of the reference on a CPU."""
    trouble = []
    for held, chosen in ((256, 8), (512, 10), (288, 8), (8, 2), (6, 6)):
        rng = np.random.default_rng(held)
        logits = rng.standard_normal((700, held)).astype(np.float32) * rng.uniform(0.1, 40, (700, 1)).astype(np.float32)
        logits[:50] = np.round(logits[:50])
        logits[50:60] = 0
        logits[60, 3], logits[61, 2], logits[62] = np.nan, np.inf, -np.inf
        logits[63, 1:] = -np.inf
        logits = logits[None] * np.array([0.5, 0.25, 0.25], np.float32)[:, None, None]
        found = jax.jit(kernels.route, static_argnums=1)(jnp.asarray(logits), chosen, I32(0))
        with jax.default_device(jax.devices("cpu")[0]):
            wanted = jax.jit(reference_route, static_argnums=1)(logits, chosen, np.int32(0))
        for name, a, b in zip(("experts", "weights"), found, wanted, strict=True):
            a, b = (np.asarray(value, np.float32) for value in (a, b))
            different = (a != b) & ~(np.isnan(a) & np.isnan(b))
            if different.any():
                rows = np.nonzero(different.any(1))[0]
                trouble.append(f"{name} of {held}: {len(rows)} rows differ, first {rows[:4].tolist()}")
    return trouble


def main(cases: list[str]) -> int:
    """The command."""
    kernels, good = select("triton"), True
    for name in cases or (*FORMATS, "route"):
        try:
            trouble = route_case(kernels) if name == "route" else pairs(kernels, name)
        except Exception as error:
            trouble = [f"{type(error).__name__}: {str(error)[:400]}"]
        print("FAIL" if trouble else "ok  ", "experts,", name, "; ".join(trouble[:8]), flush=True)
        good &= not trouble
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
