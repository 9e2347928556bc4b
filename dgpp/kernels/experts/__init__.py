"""grouped linear: every row times the matrices of the experts chosen for it.

    grouped_linear(x, experts, w, layer, used) -> float32 [R, E', N]
    grouped_linear_leaves(x, experts, w, layer, used, ranges) -> float32 [len(ranges), R, E', N]

Shapes: x bfloat16 [R, K], one row for all its experts (gate, up), or [R, E', K], one row per expert (down); experts
int32 [R, E'], the chosen experts of every row; w a `Weight` of logical shape [E, N, K] in any format, or with layers
stacked in front; layer and used as in `dgpp.kernels.linear`. An expert outside 0 to E - 1 is not held here: its output
is +0.

Order: y[r, j] has the bits of `linear` for row r alone and the matrix of experts[r, j]; nothing is added across
experts. The choice of experts ascends by id, so a caller that adds the outputs in order of j adds them in that order.
"""
