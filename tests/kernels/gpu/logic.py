"""The Triton kernels' logic on a CPU, in Triton's interpreter: run by test_logic.py in a process of its own.

    TRITON_INTERPRET=1 python -m tests.kernels.gpu.logic linear sm_121 | experts sm_121 | gated_delta | ...

The interpreter adds in another order than a GPU, so values are compared within rounding, not bit for bit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.formats import Weight, format_named

RNG = np.random.default_rng(0)
CASES = (
    (20, 1088, 3, ((0, 1088),)),
    (70, 320, 17, ((0, 128), (128, 160), (160, 320))),
    (20, 640, 3, tuple((i, i + 160) for i in range(0, 640, 160))),  # whole groups, an odd number of them
    (20, 288, 3, ((0, 96), (96, 192), (192, 288))),
)
FORMATS = (
    *("bf16", "f16", "fp8_block128_bf16", "fp8_block32_e8m0", "fp8_channel", "fp8_tensor", "nvfp4", "nvfp4_divisor"),
    *("mxfp4", "mxfp4_blocks", "mxfp8", "int4_g64", "int8_g128_f16"),
)


def encoded(format: str, *shape: int) -> Weight:
    """Two layers of random weights, quantized by the format's own encoder."""
    kind = format_named(format)
    layers = [kind.load(kind.encode(RNG.standard_normal(shape).astype(np.float32)), shape) for _ in range(2)]
    resident = [name for name, array in kind.arrays(shape).items() if array.resident]
    return Weight({name: jnp.asarray(np.stack([one[name] for one in layers])) for name in resident}, format, shape)


@contextmanager
def on(architecture: str) -> Iterator[None]:
    """Every module of ours takes the interpreter for this architecture."""
    with ExitStack() as patches:
        for name, module in list(sys.modules.items()):
            if name.startswith("dgpp.kernels.") and hasattr(module, "architecture"):
                patches.enter_context(mock.patch.object(module, "architecture", return_value=architecture))
        yield


def linear(architecture: str) -> None:
    """Every kind of format: leaves, tails, padding rows, the second of two layers, and the sum over all of K."""
    from dgpp.kernels.linear import triton
    from dgpp.kernels.linear.triton_recipe import recipe

    with mock.patch.object(triton, "architecture", return_value=architecture):
        for format in FORMATS:
            for n, k, rows, ranges in CASES:
                assert recipe(format_named(format), ranges, k) is not None, f"{format}: no recipe for {ranges}"
                w = encoded(format, n, k)
                x = jnp.asarray(RNG.standard_normal((rows, k)), jnp.float32).astype(jnp.bfloat16)
                values = format_named(format).decode64({a: np.asarray(v[1]) for a, v in w.arrays.items()}, (n, k))
                exact = np.asarray(x.astype(jnp.float32)).astype(np.float64)
                fixed = (w, jnp.int32(1), jnp.int32(rows - 1))
                for found, cut in (
                    (triton.linear_leaves(x, *fixed, ranges), ranges),
                    (triton.linear(x, *fixed)[None], ((0, k),)),
                ):
                    wanted = np.stack([exact[:, a:b] @ values[:, a:b].T for a, b in cut])
                    weight = np.stack([np.abs(exact[:, a:b]) @ np.abs(values[:, a:b]).T for a, b in cut])
                    assert not np.asarray(found)[:, rows - 1 :].any(), f"{format}: padding is not zero"
                    error = (np.abs(np.asarray(found) - wanted) / weight)[:, : rows - 1].max()
                    assert error < 2.0**-22, f"{format} {(n, k)} {cut}: error {error:.1e}"


def gated_delta() -> None:
    """Segments with replays, one and many decays, against the reference."""
    from dgpp.kernels.recurrence.reference import gated_delta as reference
    from dgpp.kernels.recurrence.triton import gated_delta as kernel
    from tests.kernels.gpu.bits_state import delta_arguments

    for per_key, slots in ((False, 4), (True, 4), (False, 12)):  # programs by slot, or by row
        arguments = delta_arguments(per_key, dk=32, dv=16, slots=slots)
        (o, state), (wanted, states) = kernel(*arguments), jax.jit(reference)(*arguments)
        for a, b in zip([o[:-1], *jax.tree.leaves(state)], [wanted[:-1], *jax.tree.leaves(states)], strict=True):
            np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b, np.float32), rtol=0, atol=1e-5)


def experts(architecture: str) -> None:
    """Pairs beside linears of their own, the activation and the fold beside their definitions, bit for bit."""
    from dgpp.kernels.experts import triton
    from dgpp.kernels.gated.reference import swiglu_bf16
    from dgpp.kernels.linear import triton as alone
    from dgpp.kernels.linear.fed import Fed, Feed, bare

    held, d, inner, leaves, one, zero = 5, 320, 64, ((0, 32), (32, 64)), jnp.int32(1), jnp.int32(0)
    for format in ("bf16", "fp8_block128_bf16", "nvfp4"):
        gate, up, down = (encoded(format, held, *shape) for shape in ((inner, d), (inner, d), (80, inner)))
        # One row, few pairs and many, a part of the sum to a program and all of them, rows that are none, an expert
        # elsewhere.
        for chosen, used, programs in (
            ([[1, 4]], 1, 1 << 20),
            ([[1, 4], [2, 4], [0, 1]], 2, 1 << 20),
            ([[1, 4], [2, 4], [-1, 1], [0, 5]], 3, 0),
        ):
            ids = jnp.asarray(chosen, jnp.int32)
            x, act = (
                jnp.asarray(RNG.standard_normal(shape), jnp.float32).astype(jnp.bfloat16)
                for shape in ((len(ids), d), (*ids.shape, inner))
            )
            weights = jnp.asarray(RNG.random(ids.shape), jnp.float32).astype(jnp.bfloat16)
            fixed = (one, jnp.int32(used))
            # With 0 leaves come in turn, tables are made in two launches, and the fold takes some columns at a time.
            limits = {"PROGRAMS": {architecture: programs}, "SCRATCH": programs, "STARTED": programs}
            limits["BLOCK"] = 256 if programs else 32
            # NumPy adds in another order for steps of other sizes, which the matrix units do not.
            with on(architecture), mock.patch.multiple(triton, **limits), mock.patch.object(alone, "FEW_OUTPUTS", 0):
                found = [np.asarray(triton.grouped_linear(x, ids, w, *fixed)) for w in (gate, up)]
                parts = np.asarray(triton.grouped_linear_leaves(act, ids, down, *fixed, leaves))
                pair, feeds = ((gate, up), (one, one)), (Feed(down, leaves),)
                opened = triton.grouped_gated(x, ids, *pair, fixed[1], zero)
                total = triton.grouped_down(act, ids, weights, down, *fixed, leaves, zero)
                fed = triton.grouped_gated(x, ids, *pair, fixed[1], zero, feeds=feeds)
                assert isinstance(fed, Fed) == (format != "bf16")
                np.testing.assert_array_equal(np.asarray(bare(fed)), np.asarray(opened))
                behind = (triton.grouped_down(a, ids, weights, down, *fixed, leaves, zero) for a in (opened, fed))
                np.testing.assert_array_equal(*(np.asarray(value) for value in behind))
                for (row, j), expert in np.ndenumerate(np.asarray(ids)):
                    if row >= used or not 0 <= expert < held:
                        assert not any(y[..., row, j, :].any() for y in (*found, parts))
                        continue
                    for w, y in zip((gate, up), found, strict=True):
                        assert (np.asarray(alone.linear(x[row, None], of(w, expert), one, one))[0] == y[row, j]).all()
                    y = alone.linear_leaves(act[row, j, None], of(down, expert), one, one, leaves)
                    assert (np.asarray(y)[:, 0] == parts[:, row, j]).all()
                if format == "bf16":
                    both = Weight({"values": jnp.concatenate([gate.arrays["values"], up.arrays["values"]], 2)}, "bf16",
                                  (held, 2 * inner, d))  # fmt: skip
                    same = triton.grouped_gated(x, ids, (both,), (one,), fixed[1], zero)
                    np.testing.assert_array_equal(np.asarray(same), np.asarray(opened))
            np.testing.assert_array_equal(np.asarray(opened), np.asarray(jax.jit(swiglu_bf16)(*found, zero)))
            wanted = np.zeros(total.shape, np.float32)
            for j in range(ids.shape[1]):
                wanted = wanted + parts[:, :, j] * np.asarray(weights, np.float32)[:, j, None]
            # In the interpreter a product's bits depend on which columns are in a tile.
            np.testing.assert_allclose(np.asarray(total), wanted, rtol=0, atol=0 if programs else 1e-5)


def of(w: Weight, expert: int) -> Weight:
    """One expert of every layer."""
    return Weight({name: array[:, expert] for name, array in w.arrays.items()}, w.format, w.shape[1:])


def groups() -> None:
    """The tables of tiles against NumPy: every pair of a real row and an expert that is here once, in order."""
    from dgpp.kernels.experts import triton

    for rows, chosen, held, used, most in ((3, 2, 8, 3, 8), (9, 2, 20, 7, 3), (40, 3, 12, 37, 12), (50, 2, 7, 50, 2)):
        ids = RNG.integers(-1, most + 1, (rows, chosen)).astype(np.int32)
        place, members = (np.asarray(a) for a in triton._tiles(jnp.asarray(ids), jnp.int32(used), held, 16))
        seen: dict[int, list[int]] = {}
        for expert, pairs in zip(place, members, strict=True):
            if expert >= 0:
                count = int((pairs >= 0).sum())
                assert count
                assert (pairs[count:] == -1).all()
                seen.setdefault(int(expert), []).extend(pairs[:count].tolist())
        pairs = np.flatnonzero((ids >= 0) & (ids < held) & (np.arange(rows) < used)[:, None])
        flat = ids.reshape(-1)
        assert seen == {int(e): [int(p) for p in pairs if flat[p] == e] for e in np.unique(flat[pairs])}


def route() -> None:
    """The bits of the reference, with ties and a row that is not a number."""
    from dgpp.kernels.route.reference import route as reference
    from dgpp.kernels.route.triton import route as kernel

    for held, chosen in ((256, 8), (12, 5), (6, 6), (1, 1)):
        logits = (RNG.standard_normal((5, held)) * 9).astype(np.float32)
        logits[1], logits[2], logits[3, -1] = np.round(logits[1] / 9), 0, np.nan
        logits[4] *= 20
        given = jnp.asarray(np.stack([logits, logits / 8]))
        for a, b in zip(
            kernel(given, chosen, jnp.int32(0)),
            jax.jit(reference, static_argnums=1)(given, chosen, jnp.int32(0)),
            strict=True,
        ):
            np.testing.assert_array_equal(np.asarray(a, np.float32), np.asarray(b, np.float32))


if __name__ == "__main__":
    {
        "linear": linear,
        "gated_delta": gated_delta,
        "experts": experts,
        "groups": groups,
        "route": route,
    }[sys.argv[1]](*sys.argv[2:])
