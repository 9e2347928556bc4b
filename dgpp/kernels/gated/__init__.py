"""gated: values that another value opens, `act(gate) * value`, as ops of a layer.

    swiglu_parts(gate, up, rows, feeds=, thrice=) -> bf16 [R, F]
    opened(mix, gate, rows, feeds=) -> bf16 [R, H * Dh]

`feeds` as in `dgpp.kernels.norm`. Equations and rounding points: `reference`. Every kernel gives the same bits.
"""
