"""The cases of `tests.kernels.gpu.attention` as data: those for a device by name, small ones for the interpreter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """Heads and widths, the options, and the tokens of the prompt."""

    heads: int
    kv_heads: int
    dim: int
    dim_v: int
    page: int
    tokens: int = 1100  # five splits, the last one short
    window: int = 0
    sinks: bool = False
    fp8: bool = False
    counts: tuple[int, ...] = (1, 64)
    block: int = 4  # of sparse attention
    budget: int = 96  # blocks


DENSE = {
    "24x4x256": Case(24, 4, 256, 256, 64, counts=(1, 3, 17, 64, 300)),
    "32x2x256": Case(32, 2, 256, 256, 64),
    "9x3x64-window-sinks": Case(9, 3, 64, 64, 16, window=300, sinks=True),
    "64x8x192-window-sinks": Case(64, 8, 192, 128, 64, window=128, sinks=True),
    "32x4x128-window-sinks": Case(32, 4, 128, 128, 64, window=513, sinks=True),
    "24x4x256-fp8": Case(24, 4, 256, 256, 64, fp8=True),
    "64x4x192-fp8": Case(64, 4, 192, 128, 64, fp8=True),
}
SMALL = {
    "dense": Case(6, 2, 32, 32, 16, tokens=90, counts=(1,)),
    "options": Case(4, 2, 48, 16, 64, tokens=90, window=70, sinks=True, counts=(5,)),
    "fp8": Case(2, 2, 32, 32, 16, tokens=70, fp8=True, counts=(5,)),
}
SPARSE = Case(24, 2, 256, 256, 64, counts=(1, 3, 64, 70))
SMALL_SPARSE = Case(4, 2, 32, 32, 16, tokens=90, counts=(1, 66), budget=12)
