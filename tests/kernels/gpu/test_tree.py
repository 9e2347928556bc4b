"""A sum that is dealt to the warps of a program is the halving tree that it says, by the layouts of Triton."""

from __future__ import annotations

import re

import pytest

from tests.kernels.gpu.available import needs_triton

pytestmark = needs_triton

WARPS = 4


@pytest.mark.parametrize("levels", [7, 10, 11])
def test_what_is_summed_at_once_lies_across_lanes_and_then_across_warps(levels: int) -> None:
    """An axis of 32 of which every lane holds one number, and one of WARPS of which a lane or a warp does: those are
    added in halves. Numbers that a thread held alone would be added one after the other."""
    from dgpp.kernels.gpu.ptx import compiled
    from tests.kernels.gpu.sums import sum_of

    constants = {"WIDTH": 1 << levels, "LEVELS": levels, "WARPS": WARPS}
    made = compiled(sum_of, ("*fp32", "*fp32"), constants, architecture="sm_90", warps=WARPS, stages=1)
    text = made.asm["ttgir"]
    summed = re.findall(r'"tt\.reduce".*?\}\) : \(tensor<([0-9x]+)xf32, ([^)]*)>\) ->', text, re.S)
    layouts = dict(re.findall(r"(#blocked\d*) = #ttg\.blocked<\{(.*?)\}>", text))
    *pairs, lanes, warps = summed
    assert all(shape.startswith("2x") for shape, _ in pairs)
    assert len(pairs) == levels - 7
    assert lanes[0] == f"{WARPS}x32"
    assert warps[0] == f"{WARPS}"
    assert "sizePerThread = [1, 1], threadsPerWarp = [1, 32], warpsPerCTA = [4, 1]" in layouts[lanes[1]]
    assert "sizePerThread = [1]," in layouts[warps[1]]
