"""route: which experts a row is given to, and with what weights.

    route(logits, k, zero) -> (experts int32 [R, k], weights bfloat16 [R, k])

logits floating point [R, E], read as float32; k from 1 to E; zero as in `dgpp.kernels.rounding`. p = softmax(logits) in
float32; the k largest p are chosen, among equal ones the lower id, and given in ascending order of id; weights are p
divided by the sum of the chosen p, always renormalised, rounded once. Both sums are halving trees in order of id.
A NaN among a row's logits makes its weights NaN.
"""
