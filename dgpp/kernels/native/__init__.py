"""Native code for the CPU: what the kernels' `native.py` files are written with.

A kernel is LLVM IR built by Python at its first use and compiled in this process for this processor, so no C compiler
is needed and vectors are exactly as wide as the machine's. XLA calls it as a custom call through its FFI.

| file | what |
|---|---|
| `target` | instruction sets and their tiles, as data |
| `emit` | loops, variables and vectors on top of llvmlite's builder |
| `compile` | IR to addresses |
| `ffi` | the handler around a kernel: it reads XLA's call frame itself, so neither Python nor its lock is in the way |
| `threads` | fork and join over helper threads |
| `floatmode` | subnormals count as zero, whichever thread runs |
| `blocks`, `dot`, `exp` | what kernels share: the lanes and their tree, tiles of dots, the exponential |

Shapes are read from the call frame, so one compiled kernel serves all of them; what is static and not a shape (ranges
of K, the scale) is an FFI attribute, which reaches the handler without an operand, a copy or another compilation.
"""
