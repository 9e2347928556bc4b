"""The Triton kernels in Triton's interpreter, each op in a process of its own: it replaces `triton.jit` everywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.gpu.available import needs_interpreter

ROOT = Path(__file__).parents[3]


pytestmark = needs_interpreter


SLOW = [
    pytest.param(f"logic {op} {architecture}", marks=pytest.mark.slow)
    for op in ("linear", "experts")
    for architecture in ("sm_90", "sm_121")
]
SLOW += [
    pytest.param(module, marks=pytest.mark.slow)
    for module in (
        *(
            "between normed gated_normed swiglu",
            "between delta_inputs attention_inputs",
            "logic groups",
            "logic route",
            "pick",
            "beside",
        ),
        *(f"attention {cases}" for cases in ("index selection", "sparse", "dense", "options", "fp8")),
    )
]


MODULES = ["between opened gated_delta_normed gather_rows", "logic gated_delta"]


@pytest.mark.parametrize("module", [*MODULES, *SLOW])
def test_the_kernels_compute_what_they_should(module: str) -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1", "JAX_PLATFORMS": "cpu"}
    name, *arguments = module.split()
    command = [sys.executable, "-m", f"tests.kernels.gpu.{name}", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
