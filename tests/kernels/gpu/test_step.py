"""A whole step: how many kernels it launches, what the compilers make of them, and that it never asks the host."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.gpu.available import needs_triton

ROOT = Path(__file__).parents[3]

pytestmark = needs_triton

LAUNCHES = {
    ("27b-fp8", 4): 338,
    ("27b-fp8", 16): 362,
    ("27b-nvfp4", 16): 408,
    ("122b-nvfp4", 16): 440,
    ("flash-next-nvfp4", 16): 198,
}
"""By rows, with every loop over layers taken once: of the 27B eight of 16 periods of four layers, and the head. The
layers of its NVFP4 release are two stacks, for their formats differ: seven of 14 periods, and two. Of the 122B
six of twelve periods, of Flash-Next two of twelve."""
SHARED = {"sm_90": 227 << 10, "sm_121": 99 << 10}
SPILLED = {
    "3.6": {("sm_90", "attend"): 1104, ("sm_90", "scores"): 112},
    "3.9": {
        ("sm_90", "attend"): 1456,
        ("sm_90", "product"): 40,
        ("sm_90", "scores"): 264,
        ("sm_121", "attend"): 432,
    },
}
"""Bytes that a thread may spill, by release of Triton: in attention, whose accumulators of heads of 256 fill the
registers; at 2048 rows of NVFP4 in what Triton 3.9 makes for sm_90; and in the scores of a prompt's blocks there."""


@pytest.mark.parametrize(("name", "rows"), LAUNCHES)
def test_a_step_has_the_recorded_number_of_launches(name: str, rows: int) -> None:
    from bench.steps import counted, step_launches

    found = step_launches(name, rows, "sm_90")
    assert len(found) == LAUNCHES[name, rows], counted(found)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", SHARED)
@pytest.mark.parametrize("rows", [16, 2048])
@pytest.mark.parametrize("name", ["27b-fp8", "27b-nvfp4", "122b-nvfp4", "flash-next-fp8", "flash-next-nvfp4"])
def test_every_kernel_of_a_step_compiles_without_spills_but_those_known(
    name: str, rows: int, architecture: str
) -> None:
    from bench.compiled import compiled
    from bench.steps import distinct, step_launches

    release = ".".join(importlib.metadata.version("triton").split(".")[:2])
    if architecture == "sm_121" and release == "3.6":
        pytest.skip("the disassembler of Triton before 3.9 does not know sm_121")
    launches = distinct(step_launches(name, rows, architecture))
    assert launches
    for launch in launches:
        made = compiled(launch, architecture)
        allowed = SPILLED[release].get((architecture, launch.kernel.__name__), 0)
        assert made.stack <= allowed, f"{launch.kernel.__name__} spills {made.stack} bytes"
        assert made.shared <= SHARED[architecture], launch.kernel.__name__


@pytest.mark.gpu
@pytest.mark.parametrize("what", ["kernels", "graphs"])
def test_a_decode_step_is_one_program_of_the_kernels_that_were_traced(what: str) -> None:
    command = [sys.executable, "-m", "tests.kernels.gpu.step", what]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    print(done.stdout)
