"""On a GPU: attention and gated_delta, whose rows must not depend on the batch, against the reference.

    python -m tests.kernels.gpu.bits_state

Prints a line a case and exits with 1 when one fails.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.kernels.attention.triton import attention
from dgpp.kernels.recurrence import DeltaState
from dgpp.kernels.recurrence.reference import gated_delta as reference_delta
from dgpp.kernels.recurrence.triton import gated_delta
from tests.kernels.gpu.bits import exact_attention

TOKENS = 2500  # of the one prompt: three splits, the last one short
COUNTS = (1, 2, 3, 8, 16, 17, 33, 64, 65, 300)
I32 = jnp.int32


def same(a: jax.Array, b: jax.Array) -> bool:
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()


def attention_case(heads: int, kv_heads: int, dim: int, page: int) -> list[str]:
    """A prompt of TOKENS rows in one batch, beside its last rows alone and rows of other slots among them."""
    keys = iter(jax.random.split(jax.random.key(0), 4))
    q = jax.random.normal(next(keys), (TOKENS, heads, dim), jnp.bfloat16)
    k, v = (jax.random.normal(next(keys), (TOKENS, kv_heads, dim), jnp.bfloat16) for _ in range(2))
    pages = -(-TOKENS // page)
    table = jax.random.permutation(next(keys), 3 * pages).reshape(3, pages).astype(I32)
    kv_index = jnp.arange(heads, dtype=I32) * kv_heads // heads
    plane = jnp.zeros((2, 3 * pages, page, kv_heads, dim), jnp.bfloat16)
    call = jax.jit(partial(attention, scale=dim**-0.5))
    fixed = (I32(1), table)

    def rows(a: slice, planes: tuple[jax.Array, jax.Array], slot: jax.Array, at: jax.Array, used: int) -> tuple:
        return call(q[a], k[a], v[a], *planes, *fixed, at, slot, kv_index, I32(used), I32(0))

    everywhere = jnp.arange(TOKENS, dtype=I32)
    whole, *planes = rows(slice(None), (plane, plane), jnp.full(TOKENS, 2, I32), everywhere, TOKENS)
    trouble = []
    for count in COUNTS:
        last = slice(TOKENS - count, TOKENS)
        found, *_ = rows(last, tuple(planes), jnp.full(count, 2, I32), everywhere[last], count)
        if not same(found, whole[last]):
            trouble.append(f"{float((found != whole[last]).mean()):.1%} differ at {count} rows")
    first, *half = rows(slice(0, 1001), (plane, plane), jnp.full(1001, 2, I32), everywhere[:1001], 1001)
    rest, *_ = rows(slice(1001, None), tuple(half), jnp.full(TOKENS - 1001, 2, I32), everywhere[1001:], TOKENS - 1001)
    if not same(jnp.concatenate([first, rest]), whole):
        trouble.append("a prompt in two pieces differs")
    for count in (40, 400):  # rows of two slots in turn, then padding
        mixed = jnp.arange(count, dtype=I32)
        slot = jnp.where(mixed < count - 7, jnp.where(mixed // 3 % 2 == 0, 2, 0), -1)
        found, *_ = rows(slice(0, count), (plane, plane), slot, jnp.where(slot >= 0, mixed, -1), count - 5)
        if not (found[count - 7 :] == 0).all() or not same(found[:3], whole[:3]):
            trouble.append(f"padding, or the first rows among {count} of two slots, differ")
    wanted = exact_attention(*(np.asarray(a.astype(jnp.float32), np.float64) for a in (q, k, v)), kv_index, step=97)
    error = float(np.abs(np.asarray(whole)[::97] - wanted[::97]).max())
    return [*trouble, *([f"error {error:.1e}"] if error > 2.0**-6 else [])]


def delta_arguments(per_key: bool, dk: int, dv: int) -> tuple[Any, ...]:
    """Segments of three slots with and without replays, committing and not, and a padding row."""
    keys, values, slots, width = 2, 4, 4, 3
    rng = np.random.default_rng(0)

    def noise(*shape: int, scale: float = 1.0) -> np.ndarray:
        return (rng.standard_normal(shape) * scale).astype(np.float32)

    decays = dk if per_key else 1
    rings = (noise(2, slots, width, keys, dk, scale=0.1), noise(2, slots, width, values, dv).astype(jnp.bfloat16))
    gates = -np.abs(noise(2, slots, width, values, decays + 1, scale=0.3))
    state = DeltaState(noise(2, slots, values, dk, dv), *rings, gates)
    rows = 9
    g = -np.abs(noise(rows, values, decays, scale=0.3))
    inputs = (
        noise(rows, keys, dk, scale=0.1),
        noise(rows, keys, dk, scale=0.1),
        noise(rows, values, dv).astype(jnp.bfloat16),
        g if per_key else g[..., 0],
        np.abs(noise(rows, values, scale=0.5)),
    )
    layout = (
        np.array([5, 6, 7, 9, 0, 1, 2, 3, -1], np.int32),
        np.array([2, 2, 2, 0, 3, 3, 3, 3, -1], np.int32),
        np.array([1, 0, 0, 0, 1, 1, 1, 1, 0], bool),
        np.array([2, 2, 2, 3, 7, 7, 7, 7, 8], np.int32),
        np.array([2, 0, 1, 0], np.int32),
    )
    tail = (np.int32(8), np.array([0, 0, 1, 1], np.int32), np.int32(0))
    return jax.tree.map(jnp.asarray, (*inputs, state, np.int32(1), *layout, *tail))


def delta_case(per_key: bool) -> list[str]:
    """The bits of the reference on a CPU."""
    arguments = delta_arguments(per_key, dk=128, dv=128)
    found = jax.jit(gated_delta)(*arguments)
    with jax.default_device(jax.devices("cpu")[0]):
        wanted = jax.jit(reference_delta)(*jax.device_put(arguments, jax.devices("cpu")[0]))
    trouble = []
    for name, a, b in zip(("o", "s", "k", "v", "gates"), jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        if not same(a, b):
            a, b = (np.asarray(x, np.float32) for x in (a, b))
            trouble.append(f"{name}: {(a != b).mean():.1%} differ from the reference, by {np.abs(a - b).max():.1e}")
    return trouble


def main() -> int:
    """The command."""
    cases = {
        "attention 24/4 heads of 256, pages of 64": partial(attention_case, 24, 4, 256, 64),
        "attention 32/2 heads of 128, pages of 16": partial(attention_case, 32, 2, 128, 16),
        "attention 9/3 heads of 64, pages of 16": partial(attention_case, 9, 3, 64, 16),
        "gated_delta": partial(delta_case, False),
        "gated_delta, a decay per key channel": partial(delta_case, True),
    }
    good = True
    for name, case in cases.items():
        try:
            trouble = case()
        except Exception as error:
            trouble = [f"{type(error).__name__}: {str(error)[:400]}"]
        print("FAIL" if trouble else "ok  ", name, "; ".join(trouble), flush=True)
        good &= not trouble
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
