"""norm: RMSNorm in its forms, as ops of a layer.

    normed(x, weight, layer, eps, rows, centred=, feeds=) -> bf16 [R, D]
    added_normed(h, leaves, weight, layer, eps, rows, centred=, feeds=) -> (bf16 [R, D], bf16 [R, D])
    gated_normed(o, z, weight, layer, eps, act, rows, feeds=) -> bf16 [R, V * dv]

`weight` is stacked over layers, `layer` picks one; `feeds` are the matrices that will read the rows (`Feed`), for
kernels that prepare them; the values do not depend on it. Equations and rounding points: `reference`. Every kernel
gives the same bits, but that subnormal results count as zero on some devices: sums over D are halving trees, roots and
divisions are correctly rounded. XLA's are not on a GPU, so there the reference alone differs.
"""
