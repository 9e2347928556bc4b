"""A small weight of every kind of format: what the tests of the common promises run over."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgpp.formats import Format, Shape, format_named
from dgpp.formats.exl3 import EXL3


@dataclass(frozen=True)
class Case:
    """A format, a shape that is awkward for it (odd N, a short tail group), and a shape that four leaves can cut."""

    tag: str
    awkward: Shape
    cut: Shape
    free_rows: bool = True  # whether rows may be cut anywhere
    free_columns: bool = False

    @property
    def format(self) -> Format:
        return format_named(self.tag)


CASES = (
    Case("bf16", (67, 75), (40, 60), free_columns=True),
    Case("f16", (67, 75), (40, 60), free_columns=True),
    Case("bf12", (67, 1024), (12, 4096)),
    Case("fp8_block128", (131, 200), (512, 512), free_rows=False),
    Case("fp8_block128_bf16", (131, 200), (512, 512), free_rows=False),
    Case("fp8_block128_e8m0", (131, 200), (512, 512), free_rows=False),
    Case("fp8_block32_e8m0", (67, 75), (128, 128), free_rows=False),
    Case("fp8_group32_e8m0", (67, 75), (12, 128)),
    Case("fp8_channel", (67, 75), (40, 60), free_columns=True),
    Case("fp8_channel_f32", (67, 75), (40, 60), free_columns=True),
    Case("fp8_tensor", (67, 75), (40, 60), free_columns=True),
    Case("fp8_tensor_f32", (67, 75), (40, 60), free_columns=True),
    Case("nvfp4", (67, 48), (12, 64)),
    Case("nvfp4_divisor", (67, 48), (12, 64)),
    Case("nvfp4_csf", (80, 96), (64, 128), free_rows=False),
    Case("mxfp4", (67, 96), (12, 128)),
    Case("mxfp4_deepseek", (67, 96), (12, 128)),
    Case("mxfp4_packed", (67, 96), (12, 128)),
    Case("mxfp4_blocks", (67, 96), (12, 128)),
    Case("mxfp4_csf", (80, 320), (64, 1024), free_rows=False),
    Case("mxfp8", (67, 96), (12, 128)),
    Case("int4_g64", (67, 104), (12, 256)),
    Case("int8_g64", (67, 100), (12, 256)),
    Case("int4_g128_f16", (67, 352), (12, 512)),
    Case("int8_g128_f16", (67, 352), (12, 512)),
    Case("gptq_int4_g128", (72, 352), (32, 512), free_rows=False),
    Case("gptq_int8_g128", (68, 352), (32, 512), free_rows=False),
    Case("gptq_int4_g128_asym_v1", (72, 352), (32, 512), free_rows=False),
    Case("gptq_int4_g128_asym_v2", (72, 352), (32, 512), free_rows=False),
    Case("int8_planes_g128", (67, 256), (12, 512)),
    Case("nf4i8", (67, 256), (12, 512)),
    Case("mixed346_3", (67, 256), (12, 512)),
    Case("mixed346_4", (67, 256), (12, 512)),
    Case("mixed346_6", (67, 256), (12, 512)),
    Case("exl3_2_3inst", (128, 256), (512, 512), free_rows=False),
    Case("exl3_3_mcg", (128, 256), (512, 512), free_rows=False),
    Case("exl3_3.5_mul1", (128, 256), (512, 512), free_rows=False),
    Case("exl3_4_3inst_su", (128, 256), (512, 512), free_rows=False),
)

BY_TAG = {case.tag: case for case in CASES}


def random_weight(case: Case, shape: Shape, seed: int = 0) -> dict[str, np.ndarray]:
    """The arrays of a random weight: encoded values with rows of different size, or for a trellis any bits."""
    rng = np.random.default_rng(seed)
    if isinstance(case.format, EXL3):
        out = {}
        for name, packed in case.format.arrays(shape).items():
            if packed.dtype == np.float16:
                out[name] = (rng.uniform(0.5, 2, packed.shape) * rng.choice([-1.0, 1.0], packed.shape)).astype(
                    np.float16
                )
            else:
                out[name] = rng.integers(-32768, 32768, packed.shape).astype(packed.dtype)
        return out
    values = rng.standard_normal(shape) * np.exp2(rng.integers(-3, 3, (*shape[:-1], 1)))
    return case.format.encode(values.astype(np.float32))
