"""Formats with kernels of their own: the cases that their tests share."""

from __future__ import annotations

FORMATS = (
    *("bf12", "nf4i8", "mixed346_3", "mixed346_4", "mixed346_6", "int8_planes_g128"),
    *("gptq_int4_g128_asym_v1", "gptq_int4_g128_asym_v2", "gptq_int8_g128_asym_v1", "gptq_int4_g32_asym_v2"),
    *(f"exl3_{rate}_mul1" for rate in (1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8)),
    *("exl3_2_mcg", "exl3_4_mcg", "exl3_5_3inst", "exl3_3_3inst_su", "exl3_8_3inst_su"),
)

BUNDLE = 16
"""Products that the matrix unit adds at a time, truncating their sum to 24 bits."""


def bound(format: str, k: int) -> float:
    """What the order of sums implies at worst, relative to the sum of the products' magnitudes: a truncation for every
    bundle of products, or one rounding for every group of 128 whose sum is an integer."""
    return 2.0**-23 * (k / 128 + 2 if format.startswith("mixed346") else k / BUNDLE)
