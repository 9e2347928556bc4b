"""Which matrices the Triton kernels take, as far as that is known without Triton."""

from __future__ import annotations

import pytest

from dgpp.formats import format_named
from dgpp.kernels.linear.triton_recipe import parts, recipe


@pytest.mark.parametrize("format", ["nvfp4", "mxfp4", "int4_g32", "nf4i8"])
def test_formats_of_nibbles_have_rows_of_whole_words(format: str) -> None:
    for k in (12, 20, 36, 68, 132):  # which the kernel could not read by words
        with pytest.raises(ValueError, match="multiple"):
            format_named(format).arrays((8, k))


@pytest.mark.parametrize("k", [64, 256, 640, 5120, 17408])
def test_the_parts_of_a_sum_cover_k_once(k: int) -> None:
    for format in ("bf16", "nvfp4", "int4_g64"):
        found = recipe(format_named(format), ((0, k),), k)
        assert found is not None
        ranges = parts(found, k)
        assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
        assert ranges[-1][1] == k
        assert all(start % 256 == 0 for start, _ in ranges)
