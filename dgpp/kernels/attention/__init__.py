"""attention: the rows of a batch write their keys and values into the paged cache and attend to it, causally.

    attention(q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, used, zero, scale=...,
              sinks=None, window=0) -> (out float32 [R, H, DV], cache_k, cache_v)

Shapes (H query heads, K key/value heads, D and DV dimensions of a head's keys and values, P tokens a page, S slots, M
pages a slot, L layers): q bfloat16 [R, H, D]; k bfloat16 [R, K, D]; v bfloat16 [R, K, DV]; cache_k bfloat16
[L, pages, P, K, D] and cache_v [L, pages, P, K, DV], updated in place when the caller donates or carries them; layer
int32 scalar; page_table int32 [S, M], the page that holds tokens [P*j, P*(j+1)) of a slot; position int32 [R], a row's
token position, -1 for padding; slot int32 [R]; kv_index int32 [H], the key/value head that each query head uses; used
int32 scalar: rows from there on are padding too; zero int32 scalar 0 (see `dgpp.kernels.rounding`); scale a Python
float. P, D and DV are multiples of 16.

A cache may also hold rows of FP8: then cache_k and cache_v are the planes of `dgpp.formats.cache.KVRows` by name, codes
uint8 [L, pages, P, K, D] and scale float32 [L, pages, P, K]. A row is encoded as it is written, and attention computes
with the decoded rows, in the order and with the bits of a bfloat16 cache that holds those.

sinks, float32 [H], are logits beside those of the tokens, one a head: it takes part in the maximum and in the sum of
the weights, and has no value (gpt-oss, MiMo, Flint). window, a Python int, limits a row to its last `window` positions,
its own included; 0: all. Pages wholly outside are not visited; those visited keep their order.

Every row of the batch is written before any row attends, and a row attends to positions 0 to its own, so rows of one
prompt may come in one batch. A padding row, or one whose position or slot lies outside the table, writes nothing and
comes out as +0. Page numbers and the layer are clamped to the cache, as XLA clamps an index.

Order (a promise: the same bits from NumPy, plain JAX and the native kernel, whoever else is in the batch): pages
j = 0 .. position // P ascending, from max(0, position - window + 1) // P with a window, with m = -inf, l = 0, acc = 0
before the first, and over a page's valid tokens t

    s_t = rounded(lane_dot(q, k_t) * scale)              the 16 lanes and the tree of `dgpp.kernels.lanes`
    m'  = max(m, max_t s_t)                              NaN if any is
    p_t = bfloat16(exp_f32(s_t - m'))
    a   = exp_f32(m - m')
    l   = rounded(l * a) + lane_sum(p_t)                 16 lanes over t, and the tree
    acc = rounded(acc * a) + sum over t of p_t * v_t     ascending t from +0; the products are exact

then, with a sink, m' = max(m, sink), a = exp_f32(m - m'), l = rounded(l * a) + exp_f32(sink - m'),
acc = rounded(acc * a), and out = acc / l. `rounded` and `exp_f32` are those of `dgpp.kernels.rounding`. A page is the
unit in which the running maximum moves, so the bits depend on P. The order of the kernels for a GPU is their own:
`triton_pages`.
"""
