"""The Triton kernels' logic on a CPU, in Triton's interpreter: run by test_logic.py in a process of its own.

    TRITON_INTERPRET=1 python -m tests.kernels.gpu.logic linear sm_121 | attention | gated_delta

The interpreter adds in another order than a GPU, so values are compared within rounding, not bit for bit.
"""

from __future__ import annotations

import sys
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.formats import Weight, format_named
from tests.kernels.gpu.bits import exact_attention

RNG = np.random.default_rng(0)
CASES = (
    (20, 1088, 3, ((0, 1088),)),
    (70, 320, 17, ((0, 128), (128, 160), (160, 320))),
)
FORMATS = (
    *("bf16", "f16", "fp8_block128_bf16", "fp8_block32_e8m0", "fp8_channel", "fp8_tensor", "nvfp4", "nvfp4_divisor"),
    *("mxfp4", "mxfp4_blocks", "mxfp8", "int4_g64", "int8_g128_f16"),
)


def encoded(format: str, n: int, k: int) -> Weight:
    """Two layers of random weights, quantized by the format's own encoder."""
    kind = format_named(format)
    layers = [kind.load(kind.encode(RNG.standard_normal((n, k)).astype(np.float32)), (n, k)) for _ in range(2)]
    resident = [name for name, array in kind.arrays((n, k)).items() if array.resident]
    return Weight({name: jnp.asarray(np.stack([one[name] for one in layers])) for name in resident}, format, (n, k))


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


def attention() -> None:
    """Few rows (a program a split) and many (one program), of several slots, against float64."""
    from dgpp.kernels.attention import triton

    heads, kv_heads, dim, page, tokens = 6, 2, 32, 16, 130
    q, k, v = (
        jnp.asarray(RNG.standard_normal((tokens, h, dim)), jnp.float32).astype(jnp.bfloat16)
        for h in (heads, kv_heads, kv_heads)
    )
    kv_index = jnp.arange(heads, dtype=jnp.int32) * kv_heads // heads
    wanted = exact_attention(*(np.asarray(a.astype(jnp.float32), np.float64) for a in (q, k, v)), kv_index, step=1)
    table = jnp.asarray(RNG.permutation(20).reshape(2, 10), jnp.int32)
    planes = (jnp.zeros((2, 20, page, kv_heads, dim), jnp.bfloat16),) * 2
    with mock.patch.multiple(triton, SPLIT=64, FEW=32):
        for start, stop in ((0, 100), (100, 117), (117, 130)):
            rows = stop - start + 2  # two padding rows
            position = jnp.asarray([*range(start, stop), -1, -1], jnp.int32)
            slot = jnp.asarray([1] * (stop - start) + [-1, -1], jnp.int32)
            padded = [jnp.pad(a[start:stop], ((0, 2), (0, 0), (0, 0)), constant_values=1) for a in (q, k, v)]
            fixed = (jnp.int32(1), table, position, slot, kv_index, jnp.int32(rows), jnp.int32(0))
            out, *planes = triton.attention(*padded, *planes, *fixed, scale=dim**-0.5)
            assert not np.asarray(out)[-2:].any(), "padding is not zero"
            error = np.abs(np.asarray(out)[:-2] - wanted[start:stop]).max()
            assert error < 2.0**-7, f"rows {start} to {stop}: error {error:.1e}"
    assert not np.asarray(planes[0][0].astype(jnp.float32)).any(), "the other layer was written to"


def gated_delta() -> None:
    """Segments with replays, one and many decays, against the reference."""
    from dgpp.kernels.recurrence.reference import gated_delta as reference
    from dgpp.kernels.recurrence.triton import gated_delta as kernel
    from tests.kernels.gpu.bits_state import delta_arguments

    for per_key in (False, True):
        arguments = delta_arguments(per_key, dk=32, dv=16)
        for a, b in zip(
            jax.tree.leaves(kernel(*arguments)), jax.tree.leaves(jax.jit(reference)(*arguments)), strict=True
        ):
            np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b, np.float32), rtol=0, atol=1e-5)


if __name__ == "__main__":
    {"linear": linear, "attention": attention, "gated_delta": gated_delta}[sys.argv[1]](*sys.argv[2:])
