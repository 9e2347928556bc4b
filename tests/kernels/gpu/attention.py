"""Dense and sparse attention as Triton kernels: a row's bits in any batch, its distance from float64, the selection.

    python -m tests.kernels.gpu.attention [CASE ...]

In Triton's interpreter with TRITON_INTERPRET=1, where sizes are small and bits are compared within rounding, since
NumPy adds in another order for other shapes; else on a CUDA device. Prints a line a case, exits with 1 when one fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.formats.cache import KVRows
from dgpp.kernels.attention import triton
from dgpp.kernels.gpu.launch import INTERPRETED
from dgpp.kernels.sparse_attention import reference as sparse_reference
from dgpp.kernels.sparse_attention import triton as sparse_triton
from tests.kernels.gpu.attention_cases import DENSE, SMALL, SMALL_SPARSE, SPARSE, Case

I32 = jnp.int32
BOUND = 2.0**-6
"""The values are about 1, and a weight is rounded to bfloat16 in the sum of values and in the length alike."""


@dataclass
class Prompt:
    """A prompt in slot 2 of three, its keys and values as numbers, and the kernel bound to everything but its rows."""

    q: jax.Array
    k: jax.Array
    v: jax.Array
    table: jax.Array
    planes: tuple[Any, Any]
    sinks: jax.Array | None
    run: Callable[..., Any]


def prompt(case: Case, seed: int = 0) -> Prompt:
    """Random values of about 1; the cache is full of NaN, which nobody may see."""
    rng = np.random.default_rng(seed)

    def noise(*shape: int) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape), jnp.float32).astype(jnp.bfloat16)

    pages = -(-case.tokens // case.page)
    front = (2, 3 * pages, case.page, case.kv_heads)

    def plane(dim: int) -> Any:
        empty = jnp.full((*front, dim), jnp.nan, jnp.bfloat16)
        return KVRows().encode(empty) if case.fp8 else empty

    sinks = jnp.asarray(rng.standard_normal(case.heads), jnp.float32) if case.sinks else None
    table = jnp.asarray(rng.permutation(3 * pages).reshape(3, pages), I32)
    call = jax.jit(partial(triton.attention, scale=case.dim**-0.5, window=case.window, sinks=sinks))
    kv_index = jnp.arange(case.heads, dtype=I32) * case.kv_heads // case.heads

    def run(q: Any, k: Any, v: Any, planes: Any, slot: Any, at: Any, used: int) -> Any:
        return call(q, k, v, *planes, I32(1), table, jnp.asarray(at, I32), jnp.asarray(slot, I32), kv_index,
                    I32(used), I32(0))  # fmt: skip

    q, k, v = (noise(case.tokens, *size) for size in (
        (case.heads, case.dim), (case.kv_heads, case.dim), (case.kv_heads, case.dim_v)))  # fmt: skip
    return Prompt(q, k, v, table, (plane(case.dim), plane(case.dim_v)), sinks, run)


def same(found: Any, wanted: Any) -> bool:
    """Equal bits, any NaN as any other; in the interpreter within the rounding of weights."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if INTERPRETED:
        return bool(np.allclose(found, wanted, rtol=0, atol=2.0**-7, equal_nan=True))
    return bool(((found.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(found) & np.isnan(wanted))).all())


def exact(case: Case, p: Prompt, row: int, tokens: np.ndarray) -> np.ndarray:
    """float64 [H, DV]: a row's attention to `tokens`, with the rows of the cache as they are stored."""

    def stored(x: jax.Array, dim: int) -> np.ndarray:
        one = np.asarray(x[tokens])  # NumPy divides exactly, which XLA does not on a GPU
        return np.asarray(KVRows().decode(KVRows().encode(one), dim) if case.fp8 else one, float)

    keys, values = stored(p.k, case.dim), stored(p.v, case.dim_v)
    kv_index = np.arange(case.heads) * case.kv_heads // case.heads
    score = np.einsum("hd,thd->ht", np.asarray(p.q[row].astype(jnp.float32), float), keys[:, kv_index])
    score *= case.dim**-0.5
    if p.sinks is not None:
        score = np.concatenate([score, np.asarray(p.sinks, float)[:, None]], axis=1)
    weight = np.exp(score - score.max(1, keepdims=True))
    weight /= weight.sum(1, keepdims=True)
    return np.einsum("ht,thd->hd", weight[:, : len(tokens)], values[:, kv_index])


def dense(case: Case) -> list[str]:
    """What is wrong with dense attention."""
    p, tokens = prompt(case), case.tokens
    every, trouble = np.arange(tokens), []

    def rows(part: Any, planes: Any, slot: int = 2) -> Any:
        at = every[part]
        return p.run(p.q[part], p.k[part], p.v[part], planes, np.full(len(at), slot), at, len(at))

    whole, *planes = rows(slice(None), p.planes)
    for row in range(0, tokens, 53):
        seen = every[max(0, row - case.window + 1) if case.window else 0 : row + 1]
        error = np.abs(np.asarray(whole[row]) - exact(case, p, row, seen)).max()
        if not error < BOUND:
            trouble.append(f"row {row} is {error:.1e} from float64")
    for count in case.counts:
        if not same(rows(slice(tokens - count, None), planes)[0], whole[tokens - count :]):
            trouble.append(f"the last {count} rows alone differ")
    cut = tokens // 2
    first, *half = rows(slice(cut), p.planes)
    if not same(jnp.concatenate([first, rows(slice(cut, None), half)[0]]), whole):
        trouble.append("a prompt in two pieces differs")
    # Runs of one slot, single rows of two others between, then padding: slot -1, beyond `used`, outside the table.
    many = cut
    at, slot = every[:many].copy(), np.full(many, 2)
    singles = np.flatnonzero(at % 7 == 3)
    at[singles], slot[singles] = 0, np.arange(len(singles)) % 2  # of which the last one written counts
    at[-4:], slot[-4:] = (-1, -1, 1 << 20, many), (-1, 0, 2, 2)
    mixed, *after = p.run(p.q[:many], p.k[:many], p.v[:many], planes, slot, at, many - 1)
    if np.asarray(mixed[-4:]).any():
        trouble.append("padding is not zero")
    kept = np.flatnonzero(slot[:-4] == 2)
    if not same(mixed[kept], whole[kept]):
        trouble.append("rows among those of other slots differ")
    if any(
        not np.array_equal(np.asarray(a[0]).view(np.uint8), np.asarray(b[0]).view(np.uint8))
        for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(p.planes), strict=True)
    ):
        trouble.append("the other layer was written to")
    # A value that is not finite makes its dimension NaN for those who see it, and for nobody else.
    seers, bad = min(64, tokens), tokens - 20
    v = p.v.at[bad, 0, 3].set(jnp.inf).at[bad, 0, 5].set(jnp.nan)
    part, before = slice(tokens - seers, tokens), seers - 20
    out = np.asarray(p.run(p.q[part], p.k[part], v[part], planes, np.full(seers, 2), every[part], seers)[0])
    alone = np.asarray(p.run(p.q[bad : bad + 1], p.k[bad : bad + 1], v[bad : bad + 1], planes, [2], [bad], 1)[0])
    lost = not same(out[before], alone[0]) or not np.isnan(out[before, 0, 3:6:2]).all()
    if lost or not same(out[:before], whole[part][:before]):
        trouble.append("a value that is not finite reaches those who do not see it, or is lost")
    if case.fp8:
        for name, plane in KVRows().encode(np.asarray(p.k)).items():
            found = np.asarray(planes[0][name])[1][np.asarray(p.table)[2]]
            if not np.array_equal(found.reshape(-1, *found.shape[2:])[:tokens], np.asarray(plane)):
                trouble.append(f"the {name} of stored rows are not those of the format")
    return trouble


def sparse(case: Case) -> list[str]:
    """What is wrong with sparse attention: beside dense attention, float64, and itself in other batches."""
    p, tokens = prompt(case), case.tokens
    every, trouble = np.arange(tokens), []
    whole, *planes = p.run(p.q, p.k, p.v, p.planes, np.full(tokens, 2), every, tokens)
    kv_index = jnp.arange(case.heads, dtype=I32) * case.kv_heads // case.heads
    none = p.table.shape[1] * case.page // case.block
    call = jax.jit(partial(sparse_triton.sparse_attention, scale=case.dim**-0.5, block=case.block))

    def rows(at: np.ndarray, blocks: np.ndarray) -> Any:
        slot = jnp.full(len(at), 2, I32)
        return call(p.q[at], p.k[at], p.v[at], *planes, I32(1), p.table, jnp.asarray(at, I32), slot, kv_index,
                    jnp.asarray(blocks, I32), I32(len(at)), I32(0))[0]  # fmt: skip

    def best(at: np.ndarray, budget: int, rng: np.random.Generator) -> np.ndarray:
        chosen = [np.sort(rng.permutation((row + 1) // case.block)[:budget]) for row in at]
        return np.stack([np.pad(one, (0, budget - len(one)), constant_values=none) for one in chosen])

    last = every[tokens - 70 :]
    if not same(rows(last, best(last, none, np.random.default_rng(0))), whole[last]):
        trouble.append("all blocks differ from dense attention")
    chosen = best(every, case.budget, np.random.default_rng(1))
    out = np.asarray(rows(every, chosen))
    for count in case.counts:
        if not same(rows(every[-count:], chosen[-count:]), out[-count:]):
            trouble.append(f"the last {count} rows alone differ")
    for row in range(0, tokens, 53):
        kept = np.isin(every // case.block, chosen[row]) | (every >= (row + 1) // case.block * case.block)
        error = np.abs(out[row] - exact(case, p, row, every[kept & (every <= row)])).max()
        if not error < BOUND:
            trouble.append(f"row {row} is {error:.1e} from float64")
    return trouble


def index() -> list[str]:
    """What is wrong with the indexer's scores, beside the reference and in other batches."""
    rng, trouble = np.random.default_rng(2), []
    tokens, heads, dim, page, block = (90, 2, 32, 16, 4) if INTERPRETED else (2500, 4, 128, 64, 4)
    pages = -(-tokens // page)
    plane = jnp.asarray(rng.standard_normal((2, 3 * pages, page // block, dim)), jnp.float32).astype(jnp.bfloat16)
    q = jnp.asarray(rng.standard_normal((tokens, heads, dim)), jnp.float32).astype(jnp.bfloat16)
    table = jnp.asarray(rng.permutation(3 * pages).reshape(3, pages), I32)

    def rows(op: Any, part: slice, used: int | None = None) -> np.ndarray:
        at = np.arange(tokens)[part]
        slot = jnp.full(len(at), 2, I32)
        fixed = (I32(1), table, jnp.asarray(at, I32), slot, I32(len(at) if used is None else used), I32(0))
        return np.asarray(op(q[part], plane, *fixed, block=block))

    whole = rows(sparse_triton.index_scores, slice(None))
    last = slice(tokens - 40, None)
    with jax.default_device(jax.devices("cpu")[0]):
        wanted = np.asarray(rows(sparse_reference.index_scores, last))
    finite = np.isfinite(wanted)
    if (np.isfinite(whole[last]) != finite).any() or np.abs(
        whole[last][finite] - wanted[finite]
    ).max() > 2.0**-18 * dim:
        trouble.append("scores differ from the reference")
    for count in (1, 7, 65):
        if not same(rows(sparse_triton.index_scores, slice(tokens - count, None)), whole[tokens - count :]):
            trouble.append(f"the last {count} rows alone differ")
    if np.isfinite(rows(sparse_triton.index_scores, last, used=30)[30:]).any():
        trouble.append("padding has scores")
    return trouble


def chosen() -> list[str]:
    """What is wrong with the selection, beside the reference: ties, NaN of both signs, few complete blocks, none."""
    rng, trouble = np.random.default_rng(3), []
    for blocks, count in (
        (300, 64),
        (300, 400),
        (16, 16),
        (5, 1),
        (2500, 512),
        *(() if INTERPRETED else ((65536, 512),)),
    ):
        scores = rng.integers(0, 40, (6, blocks)).astype(np.float32)
        scores[1] = rng.standard_normal(blocks)
        scores[2, blocks // 3 :] = -np.inf
        scores[3] = -np.inf
        scores[4, rng.integers(0, blocks, 3)] = np.nan, -np.nan, np.inf
        scores[5] *= -0.0
        found = np.asarray(sparse_triton.select_blocks(jnp.asarray(scores), count))
        with jax.default_device(jax.devices("cpu")[0]):
            wanted = np.asarray(sparse_reference.select_blocks(jnp.asarray(scores), count))
        if not np.array_equal(found, wanted):
            trouble.append(f"{count} of {blocks}: rows {np.flatnonzero((found != wanted).any(1))} differ")
    return trouble


def cases() -> dict[str, Callable[[], list[str]]]:
    """Every case by its name; small ones in the interpreter."""
    named: dict[str, Callable[[], list[str]]] = {
        name: partial(dense, case) for name, case in (SMALL if INTERPRETED else DENSE).items()
    }
    named["sparse"] = partial(sparse, SMALL_SPARSE if INTERPRETED else SPARSE)
    return named | {"index": index, "selection": chosen}


def main(names: list[str]) -> int:
    """The command."""
    good = True
    sizes: dict[str, Any] = {"SPLIT": 64, "FEW": 8, "PROGRAMS": 4, "ALONE": 20, "SPAN": 3} if INTERPRETED else {}
    with mock.patch.multiple(triton, **sizes) if sizes else nullcontext():
        for name, case in cases().items():
            if names and name not in names:
                continue
            try:
                trouble = case()
            except Exception as error:
                trouble = [f"{type(error).__name__}: {str(error)[:400]}"]
            print("FAIL" if trouble else "ok  ", name, "; ".join(trouble), flush=True)
            good &= not trouble
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
