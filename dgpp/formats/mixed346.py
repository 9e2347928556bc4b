"""Mixed346: 3-, 4- or 6-bit indices into integer levels against int8 activations, in a Hadamard basis.

Layout: as NF4I8, with `indices` I32 [N, K * bits / 32], a dense little-endian bit stream whose 3- and 6-bit codes cross
words; one group of 128 is 16 * bits bytes. Levels: 3 bits -127 -79 -45 -14 14 45 79 127; 4 bits those of NF4I8;
6 bits index - 32. Rotated value: level * scale. 0.390625, 0.515625 or 0.765625 bytes per weight.

Activations: rotated and rounded to bf16 as for NF4I8, then per 128 elements s_a = max(fl32(amax / 127), 1e-30) and
code = rint(fl32(x / s_a)) within -128 to 127. A group's sum of level * code is an integer below 2^21, exact in float32
in any order; it is multiplied by fl32(scale * s_a).
`decode` gives W itself; the quantised activations are part of the format's product, not of the weight.
Encoder and slice rule: as NF4I8. The release's expert forms ("444", "334", ...) name a width per projection.
Source: release GLM-5.3-Mixed346-GPTQ-H32-A8-g128; AhmmedSamier/dgpp src/kernels/packq_a8_gemv.cuh.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgpp.formats.arrays import Array, divided, library
from dgpp.formats.base import Activations, Arrays, Shape
from dgpp.formats.nf4i8 import GROUP, LEVELS, LevelFormat, rotate

TABLES: dict[int, np.ndarray] = {
    3: np.array([-127, -79, -45, -14, 14, 45, 79, 127], np.float32),
    4: LEVELS,
    6: np.arange(-32, 32).astype(np.float32),
}
LEAST_SCALE = np.float32(1e-30)


@dataclass(frozen=True)
class Mixed346(LevelFormat):
    """Mixed346 at 3, 4 or 6 `bits`."""

    bits: int

    @property
    def name(self) -> str:
        """ "mixed346_3", "mixed346_4" or "mixed346_6"."""
        return f"mixed346_{self.bits}"

    @property
    def levels(self) -> np.ndarray:
        """The levels of this width."""
        return TABLES[self.bits]

    def prepare(self, x: Array, arrays: Arrays, shape: Shape) -> Activations:
        """The int8 codes of the rotated rows, and their scales [R, K/128]."""
        return quantise(rotate(x))


def quantise(x: Array) -> Activations:
    """int8 codes, as float32, of float32 rows x [R, K], and their scales [R, K/128]."""
    lib = library(x)
    groups = x.reshape(x.shape[0], -1, GROUP)
    scale = lib.maximum(divided(lib.abs(groups).max(-1), np.float32(127)), LEAST_SCALE)
    codes = lib.clip(lib.rint(divided(groups, scale[..., None])), -128, 127)
    return Activations(codes.reshape(x.shape), scale)
