"""Attention to selected blocks of tokens, and the indexer that selects them.

    index_scores(q, index, layer, page_table, position, slot, used, zero, block=...) -> float32 [R, N]
    select_blocks(scores, count) -> int32 [R, min(count, N)]
    sparse_attention(q, k, v, cache_k, cache_v, layer, page_table, position, slot, kv_index, blocks, used, zero,
                     scale=..., block=...) -> (out float32 [R, H, D], cache_k, cache_v)

A block is `block` tokens from a multiple of it; a page holds whole blocks, and a slot has room for N = M * P / block. A
block is complete for a row when its last token is not after the row's position.

index_scores: q bfloat16 [R, H', D'], the index queries; index [L, pages, P / block, D'], the plane of compressed keys,
already written; the rest as in `dgpp.kernels.attention`. The score of a complete block b is

    score_b = (sum over heads of relu(lane_dot(q_h, key_b))) / fl32(sqrt(D'))

with the lanes and the tree of `dgpp.kernels.lanes`, heads added in ascending order, and one division. All others, and
all of padding rows, have -inf.

select_blocks: the `count` blocks of the highest score, among equal ones the lower number, in ascending order of number;
where fewer are complete the rest is N. Exact.

sparse_attention: as `dgpp.kernels.attention`, but a row attends only to the tokens of its `blocks` (int32 [R, n], from
`select_blocks`; numbers outside 0 to N - 1 mean none) and to those after its last complete block, up to its own. Order:
that of attention, where the tokens that are not attended to are left out of every maximum and sum, and a page without
any is left out altogether. So with all blocks selected the bits are those of attention.

Source: `Qwen4ExpTextQSAIndexer` of transformers 5.24; the order among equal scores is ours.
"""
