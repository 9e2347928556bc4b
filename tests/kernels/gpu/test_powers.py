"""Relative E8M0 scales against float64, in the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.gpu.available import needs_interpreter

ROOT = Path(__file__).parents[3]

pytestmark = [needs_interpreter, pytest.mark.slow]


@pytest.mark.parametrize("architecture", ["sm_90", "sm_121"])
def test_scales_far_apart_keep_what_a_float32_sum_keeps(architecture: str) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "tests.kernels.gpu.powers", architecture]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
