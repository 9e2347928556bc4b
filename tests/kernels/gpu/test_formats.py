"""Formats with kernels of their own: their logic in Triton's interpreter, and what the compiler makes of them."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.gpu.available import needs_interpreter, needs_triton
from tests.kernels.gpu.formats import FORMATS

ROOT = Path(__file__).parents[3]

pytestmark = needs_triton

COMPILED = ("bf12", "nf4i8", "mixed346_3", "mixed346_4", "mixed346_6", "exl3_4_mul1", "exl3_3.5_mul1", "exl3_3_3inst",
            "int8_planes_g128", "gptq_int4_g128_asym_v1")  # fmt: skip
LIMITS = {"sm_90": 227 << 10, "sm_121": 99 << 10}


@needs_interpreter
@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_the_kernel_computes_what_it_should(format: str) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.kernels.gpu.logic_formats", "sm_90", format]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.parametrize("rate", [1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8])
def test_every_state_of_exl3_lies_in_the_word_that_it_is_taken_from(rate: float) -> None:
    from dgpp.kernels.linear.triton_exl3 import CUT, behind, windows

    found = windows(behind(rate))
    assert set(found) == set(behind(rate))
    assert {at - place for at, place in found.items()} <= set(CUT)
    if rate in (2, 4):  # seven states are above others, and share words that are made for them
        assert len(set(found.values()) - {0, 32}) == 3


@pytest.mark.gpu
@pytest.mark.parametrize("format", ["bf12", "nf4i8", "mixed346_3", "exl3_2.5_mul1", "gptq_int4_g32_asym_v2"])
def test_escapes_raw_rows_and_what_is_no_number_on_a_device(format: str) -> None:
    command = [sys.executable, "-m", "tests.kernels.gpu.logic_formats", "gpu", format]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", LIMITS)
@pytest.mark.parametrize("format", COMPILED)
def test_every_row_count_compiles_to_the_one_instruction_class(architecture: str, format: str) -> None:
    from bench.compiled import linear_row

    if architecture == "sm_121" and importlib.metadata.version("triton") < "3.9":
        pytest.skip("the disassembler of Triton before 3.9 does not know sm_121")
    unit = "IMMA" if format.startswith("mixed346") else "HMMA"
    wanted = unit[0] + "GMMA" if architecture == "sm_90" else unit
    for rows in (1, 17, 64, 300):
        row = linear_row(format, rows, architecture)
        assert row["class"] == wanted
        # The compiler of CI spills a little for sm_90, where that of the lent device, Triton 3.6, does not.
        assert row["spill_bytes"] == 0 or architecture == "sm_90"
        assert row["shared_bytes"] <= LIMITS[architecture]
