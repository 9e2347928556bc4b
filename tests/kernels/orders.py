"""The orders of `dgpp.kernels` in NumPy, element by element as the op packages state them: what kernels must equal.

Float32 as the kernels compute it: subnormal inputs and results count as zero. A fused multiply-add goes through
float64: the product of two bfloat16 is exact there, and one addition rounded to 53 bits and then to 24 gives what a
single rounding gives (53 >= 2 * 24 + 2).
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from dgpp.kernels.rounding import exp_f32_numpy

F32 = np.float32
BF16 = ml_dtypes.bfloat16
TINY = np.finfo(np.float32).tiny


def flush(x: np.ndarray) -> np.ndarray:
    """Float32 with subnormals replaced by zero of the same sign."""
    x = np.asarray(x, F32)
    return np.where(np.abs(x) < TINY, np.copysign(F32(0), x), x)


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", over="ignore"):
        exact = flush(a).astype(np.float64) * flush(b).astype(np.float64) + flush(c).astype(np.float64)
        return flush(exact.astype(F32))


def tree(lanes: np.ndarray) -> np.ndarray:
    """[..., 16] -> [...]"""
    with np.errstate(invalid="ignore", over="ignore"):
        for half in (8, 4, 2, 1):
            lanes = flush(lanes[..., :half] + lanes[..., half : 2 * half])
    return lanes[..., 0]


def lane_dot(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Sum over the last axis of x [R, K] and w [N, K] -> [R, N]."""
    fill = ((0, 0), (0, -x.shape[1] % 16))
    x, w = np.pad(x.astype(F32), fill), np.pad(w.astype(F32), fill)
    lanes = np.zeros((x.shape[0], w.shape[0], 16), F32)
    for j in range(0, x.shape[1], 16):
        lanes = fma(x[:, None, j : j + 16], w[None, :, j : j + 16], lanes)
    return tree(lanes)


def linear_leaves(x, w, layer, used, ranges):
    w = w if w.ndim == 2 else w[layer]
    out = np.stack([lane_dot(x[:, s:e], w[:, s:e]) for s, e in ranges])
    out[:, used:] = 0
    return out


def attention(
    q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, used, scale, attended=None, sinks=None
):
    """`attended` is bool [R, M * P], the tokens that a row may attend to at all; by default every one."""
    cache_k, cache_v = cache_k.copy(), cache_v.copy()
    (rows, heads, _), dim = q.shape, v.shape[2]
    page = cache_k.shape[2]
    live = [r for r in range(min(used, rows)) if 0 <= position[r] < page_table.shape[1] * page]
    for r in live:
        at = (layer, page_table[slot[r], position[r] // page], position[r] % page)
        cache_k[at], cache_v[at] = k[r], v[r]
    out = np.zeros((rows, heads, dim), F32)
    with np.errstate(invalid="ignore", over="ignore"):
        for r in live:
            for h in range(heads):
                top, length, acc = F32(-np.inf), F32(0), np.zeros(dim, F32)
                for j in range(position[r] // page + 1):
                    seen = np.arange(page)[: max(0, position[r] + 1 - j * page)]
                    if attended is not None:
                        seen = seen[attended[r, j * page + seen]]
                    if not len(seen):
                        continue
                    at = (layer, page_table[slot[r], j], seen, kv_index[h])
                    keys, values = cache_k[at], cache_v[at].astype(F32)
                    score = flush(lane_dot(q[r, h][None], keys)[0] * F32(scale))
                    new_top = np.maximum(top, score.max())
                    weight = flush(exp_f32_numpy(flush(score - new_top)).astype(BF16).astype(F32))
                    shrink = flush(exp_f32_numpy(flush(top - new_top)))
                    lanes, part = np.zeros(16, F32), np.zeros(dim, F32)
                    for i, t in enumerate(seen):
                        lanes[t % 16] += weight[i]
                        part = fma(weight[i], values[i], part)
                    length = flush(flush(length * shrink) + tree(lanes))
                    acc = flush(flush(acc * shrink) + part)
                    top = new_top
                if sinks is not None:
                    new_top = np.maximum(top, sinks[h])
                    shrink = flush(exp_f32_numpy(flush(top - new_top)))
                    length = flush(flush(length * shrink) + flush(exp_f32_numpy(flush(sinks[h] - new_top))))
                    acc = flush(acc * shrink)
                out[r, h] = flush(acc / length)
    return out, cache_k, cache_v


def over_keys(s, x):
    """sum over i of rounded(s[i, j] * x[i]), s [dk, dv] -> [dv]."""
    products = flush(s * x[:, None])
    products = np.pad(products, ((0, -len(x) % 16), (0, 0)))
    lanes = np.zeros((16, s.shape[1]), F32)
    for i in range(0, len(products), 16):
        lanes = flush(lanes + products[i : i + 16])
    return tree(lanes.T)


def gated_delta(q, k, v, g, beta, s, rings, layer, position, slot, commits, last, replay, used, key_index):
    """(o, s, rings) with rings = {"k", "v", "gates"}, all copied."""
    s, rings = s.copy(), {name: ring.copy() for name, ring in rings.items()}
    old = {name: ring.copy() for name, ring in rings.items()}
    rows, heads, dv = v.shape
    width = rings["k"].shape[2]
    gates = np.concatenate([g.reshape(rows, heads, -1), beta[..., None]], axis=-1)

    def advance(state, k, v, gates):
        for h in range(heads):
            state[h] = flush(state[h] * flush(exp_f32_numpy(gates[h, :-1]))[:, None])
            missing = flush(v[h].astype(F32) - over_keys(state[h], k[key_index[h]]))
            u = flush(missing * gates[h, -1])
            state[h] = flush(state[h] + flush(k[key_index[h]][:, None] * u[None]))

    o = np.zeros((rows, heads, dv), F32)
    first = 0
    while first < used:
        mine = slot[first]
        state = s[layer, mine].copy() if position[first] else np.zeros_like(s[layer, mine])
        for p in range(position[first] - replay[mine], position[first]):
            advance(state, *(old[name][layer, mine, p % width] for name in ("k", "v", "gates")))
        s[layer, mine] = state
        for r in range(first, last[first] + 1):
            advance(state, k[r], v[r], gates[r])
            for h in range(heads):
                o[r, h] = over_keys(state[h], q[r, key_index[h]])
            if commits[r]:
                s[layer, mine] = state
            elif last[r] - r < width:
                for name, x in (("k", k), ("v", v), ("gates", gates)):
                    rings[name][layer, mine, position[r] % width] = x[r]
        first = last[first] + 1
    return o, s, rings


def index_scores(q, index, layer, page_table, position, slot, used, block):
    rows, _, dim = q.shape
    each = index.shape[2]
    out = np.full((rows, page_table.shape[1] * each), -np.inf, F32)
    for r in range(used):
        for b in range((position[r] + 1) // block):
            key = index[layer, page_table[slot[r], b // each], b % each]
            dots = lane_dot(q[r], key[None])[:, 0]
            total = F32(0)
            for dot in np.where(dots <= 0, F32(0), dots):
                total = flush(total + dot)
            out[r, b] = flush(total / F32(np.sqrt(F32(dim))))
    return out
