"""What the compiler makes of attention, without a GPU: the pinned instruction class, shared memory, the main loop."""

from __future__ import annotations

import pytest

from tests.kernels.gpu.available import needs_triton
from tests.kernels.gpu.test_compiled import CLASSES, LIMITS, architecture

__all__ = ["architecture"]

pytestmark = [needs_triton, pytest.mark.slow]

RELOADS = 4  # spilled registers that a pass of the main loop may load: it takes up some 30,000 values of the cache


@pytest.mark.parametrize("rows", [1, 2048])
@pytest.mark.parametrize("shape", ["the widest heads", "options", "chosen blocks"])
def test_attention_compiles_to_the_one_instruction_class(architecture: str, shape: str, rows: int) -> None:
    from bench import attention
    from bench.compiled import attention_row

    shapes = {
        "the widest heads": attention.SHAPES[0],
        "options": attention.SHAPES[4],
        "chosen blocks": attention.SPARSE,
    }
    row = attention_row(shapes[shape], rows, 8192, architecture)
    assert row["class"] == CLASSES[architecture][0]
    assert row["loop_spills_count"] <= RELOADS
    assert row["shared_bytes"] <= LIMITS[architecture]


@pytest.mark.parametrize("rows", [1, 2048])
def test_no_kernel_of_sparse_attention_mixes_instruction_classes(architecture: str, rows: int) -> None:
    from bench import attention
    from bench.compiled import attention_launches, compiled

    launches = attention_launches(attention.SPARSE, rows, 8192, architecture)
    assert {launch.kernel.__name__ for launch in launches} >= {"scores", "select", "write", "attend"}
    for launch in launches:
        codes = compiled(launch, architecture).opcodes
        assert not any(code.startswith(f"{CLASSES[architecture][1]}.") for code in codes), launch.kernel
