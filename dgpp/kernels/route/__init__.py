"""route: which experts a row is given to, and with what weights.

    route(parts, k, zero) -> (experts int32 [R, k], weights bfloat16 [R, k])

parts float32 [P, R, E] are those of the router's product (`dgpp.kernels.linear.parts`); k from 1 to E; zero as in
`dgpp.kernels.rounding`. The logits are their sum rounded to bfloat16, p = softmax(logits) in float32; the k largest p
are chosen, among equal ones the lower id, and given in ascending order of id; weights are p divided by the sum of the
chosen p, always renormalised, rounded once. Both sums are halving trees in order of id. A logit that is not a number
makes its row's weights NaN.
"""
