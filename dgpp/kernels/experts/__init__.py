"""The experts chosen for every row: products with their matrices, the gated activation, and the weighted sum.

    grouped_linear(x, experts, w, layer, used) -> float32 [R, E', N]
    grouped_linear_leaves(x, experts, w, layer, used, ranges) -> float32 [len(ranges), R, E', N]
    grouped_gated(x, experts, weights, layers, used, zero, feeds=) -> bfloat16 [R, E', I]
    grouped_down(act, experts, weights, w, layer, used, ranges, zero) -> float32 [len(ranges), R, D]

Shapes: x bfloat16 [R, K], one row for all its experts (gate, up), or [R, E', K], one row per expert (down); experts
int32 [R, E'], the chosen experts of every row; w a `Weight` of logical shape [E, N, K] in any format, or with layers
stacked in front; layer, used and zero as in `dgpp.kernels.linear` and `dgpp.kernels.rounding`. An expert outside 0 to
E - 1 is not held here: its output is +0.

grouped_gated takes gate and up, two weights [E, I, K] with a layer each, or one [E, 2I, K] that has gate's rows first,
and gives bf16(bf16(silu(bf16(gate))) * bf16(up)) of the two grouped linears; `feeds` as in `dgpp.kernels.norm`: the
weight that grouped_down will be given. grouped_down takes those activations [R, E', K], a weight for every chosen
expert [R, E'] and down [E, D, K]; within a leaf rounded(weight * expert) is added from +0 in the order of `experts`.

Order: y[r, j] has the bits of `linear` for row r alone and the matrix of experts[r, j]. The choice of experts ascends
by id, so what is added in order of j is added in that order.
"""
