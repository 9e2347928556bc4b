"""Kernels as XLA is given them: PTX of their arrays alone, the same on every machine."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import pytest

from tests.kernels.gpu.available import needs_triton

pytestmark = needs_triton

TEXT = """
.visible .entry step(
	.param .u64 .ptr .global .align 1 step_param_0,
	.param .u64 .ptr .global .align 1 step_param_1,
	.param .u64 .ptr .global .align 1 step_param_2
)
.reqntid 128
{
	ld.param.b64 	%rd1, [step_param_0];
	ret;
}
"""


def made(architecture: str = "sm_90") -> tuple[Any, Any]:
    """A launch of the linear of FP8, and its PTX."""
    from bench.compiled import launches
    from dgpp.kernels.gpu.ptx import ptx

    *_, launch = launches("fp8_block128_bf16", 4, architecture)
    given = (launch.kernel, launch.types, launch.constants)
    return launch, ptx(*given, architecture=architecture, warps=launch.warps, stages=launch.stages)


@pytest.mark.parametrize("architecture", ["sm_90", "sm_121"])
def test_a_kernel_takes_its_arrays_and_nothing_else(architecture: str) -> None:
    from dgpp.kernels.gpu.ptx import NEWEST

    if architecture == "sm_121":
        pytest.importorskip("triton", minversion="3.9", reason="the assembler of Triton before 3.9 has no sm_121")
    launch, found = made(architecture)
    assert found.name == "product"
    assert found.threads == 32 * launch.warps
    entry = re.search(r"\.entry\s+product\(([^)]*)\)", found.text)
    assert entry is not None
    assert entry[1].count(".param") == len(launch.types)
    assert f".target {architecture}a" in found.text
    version = re.search(r"\.version (\d+)\.(\d+)", found.text)
    assert version is not None
    assert int(version[1] + version[2]) <= NEWEST


def test_its_text_names_no_place_of_this_machine() -> None:
    _, found = made()
    assert ".loc" not in found.text
    assert ".file" not in found.text
    assert "/" not in re.sub(r"//.*", "", found.text)


def test_parameters_of_triton_are_left_out() -> None:
    from dgpp.kernels.gpu.ptx import bare

    assert "step_param_1" not in bare(TEXT, "step", 1)
    assert bare(TEXT, "step", 1).count(".param") == 1 + 1  # and where it is read
    assert bare(TEXT, "step", 3).split() == TEXT.split()


def test_parameters_that_are_read_cannot_be_left_out() -> None:
    from dgpp.kernels.gpu.ptx import bare

    with pytest.raises(ValueError, match="step reads step_param_0"):
        bare(TEXT, "step", 0)


@pytest.mark.parametrize(("name", "count"), [("other", 1), ("step", 4)])
def test_an_entry_of_too_few_parameters_is_refused(name: str, count: int) -> None:
    from dgpp.kernels.gpu.ptx import bare

    with pytest.raises(ValueError, match=f"{name}: .* parameters in the PTX of a kernel of {count} arrays"):
        bare(TEXT, name, count)


def test_a_call_is_one_custom_call_that_shares_the_memory_it_should() -> None:
    from dgpp.kernels.gpu import launch as gpu
    from dgpp.kernels.triton_rings import write_rows

    def call(x: Any, ring: Any, scalar: Any, rows: Any) -> Any:
        out = gpu.Out(ring.shape, ring.dtype, alias=1)
        arguments = (x, ring, scalar, rows, rows, rows, scalar, x)
        constants = {"L": 2, "S": 3, "DEPTH": 4, "N": 64, "BLOCK": 64}
        return gpu.launch(write_rows, arguments, (out,), (5, 1), constants, warps=4, stages=1)[0]

    bf16, i32 = jnp.bfloat16, jnp.int32
    shapes = (((5, 64), bf16), ((2, 3, 4, 64), bf16), ((), i32), ((5,), i32))
    given = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    with mock.patch.object(gpu, "architecture", return_value="sm_90"):
        text = jax.jit(call).trace(*given).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("stablehlo.custom_call") == 1
    assert "__gpu$xla.gpu.ptx" in text
    assert "grid_x = 5 : i32" in text
    assert "block_x = 128 : i32" in text
    assert "operand_index = 1" in text


@pytest.mark.parametrize(("shared", "asked"), [(0, 0), (1, 0), (48 << 10, 0), ((48 << 10) + 16, (48 << 10) + 16)])
def test_shared_memory_is_declared_where_it_may_be(shared: int, asked: int) -> None:
    from dgpp.kernels.gpu.ptx import declared

    text = ".extern .shared .align 16 .b8 global_smem[];\nmov.b32 %r1, global_smem;\n"
    found, left = declared(text, shared)
    assert left == asked
    assert found == (text if left or not shared else text.replace(".extern ", "").replace("[]", f"[{shared}]"))


def test_text_without_the_variable_of_triton_is_asked_for_its_memory() -> None:
    from dgpp.kernels.gpu.ptx import declared

    assert declared("ret;\n", 64) == ("ret;\n", 64)


def test_a_product_of_little_shared_memory_asks_for_none() -> None:
    _, found = made()
    assert found.shared == 0
    assert re.search(r"^\.shared .*global_smem\[\d+\];$", found.text, re.M)
