"""On a CUDA device: rows' bits at every number of rows, and the distance from float64."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.gpu.attention_cases import DENSE
from tests.kernels.gpu.bits import FORMATS
from tests.kernels.gpu.bits_experts import FORMATS as EXPERT_FORMATS

ROOT = Path(__file__).parents[3]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "module",
    [
        *(f"bits {format}" for format in FORMATS),
        *(f"bits_experts {name}" for name in (*EXPERT_FORMATS, "route")),
        "bits_state",
        "between",
        "beside",
        "pick",
        *(f"attention {case}" for case in (*DENSE, "sparse", "index", "selection")),
    ],
)
def test_a_rows_bits_do_not_depend_on_the_batch(module: str) -> None:
    name, *arguments = module.split()
    command = [sys.executable, "-m", f"tests.kernels.gpu.{name}", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
