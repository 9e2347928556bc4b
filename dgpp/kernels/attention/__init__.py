"""attention: the rows of a batch write their keys and values into the paged cache and attend to it, causally.

    attention(q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, used, zero, scale=...)
        -> (out float32 [R, H, D], cache_k, cache_v)

Shapes (H query heads, K key/value heads, D head dimension, P tokens a page, S slots, M pages a slot, L layers):
q bfloat16 [R, H, D]; k, v bfloat16 [R, K, D]; cache_k, cache_v bfloat16 [L, pages, P, K, D], updated in place when the
caller donates or carries them; layer int32 scalar; page_table int32 [S, M], the page that holds tokens
[P*j, P*(j+1)) of a slot; position int32 [R], a row's token position, -1 for padding; slot int32 [R]; kv_index int32
[H], the key/value head that each query head uses; used int32 scalar: rows from there on are padding too; zero int32
scalar 0 (see `dgpp.kernels.rounding`); scale a Python float. P and D are multiples of 16.

Every row of the batch is written before any row attends, and a row attends to positions 0 to its own, so rows of one
prompt may come in one batch. A padding row, or one whose position or slot lies outside the table, writes nothing and
comes out as +0. Page numbers and the layer are clamped to the cache, as XLA clamps an index.

Order (a promise: the same bits from NumPy, plain JAX and the native kernel, whoever else is in the batch): pages
j = 0 .. position // P ascending, with m = -inf, l = 0, acc = 0 before the first, and over a page's valid tokens t

    s_t = rounded(lane_dot(q, k_t) * scale)              the 16 lanes and the tree of `dgpp.kernels.lanes`
    m'  = max(m, max_t s_t)                              NaN if any is
    p_t = bfloat16(exp_f32(s_t - m'))
    a   = exp_f32(m - m')
    l   = rounded(l * a) + lane_sum(p_t)                 16 lanes over t, and the tree
    acc = rounded(acc * a) + sum over t of p_t * v_t     ascending t from +0; the products are exact

and out = acc / l. `rounded` and `exp_f32` are those of `dgpp.kernels.rounding`. A page is the unit in which the running
maximum moves, so the bits depend on P.
"""
