"""What the compiler makes of the kernels, without a GPU: the pinned instruction class, no spills, shared memory."""

from __future__ import annotations

import importlib.metadata
from functools import partial

import jax
import jax.numpy as jnp
import pytest

from dgpp.checkpoint.spec import even_ranges
from tests.kernels.gpu.available import needs_triton

pytestmark = needs_triton

LIMITS = {"sm_90": 227 << 10, "sm_121": 99 << 10}
CLASSES = {"sm_90": ("HGMMA", "HMMA"), "sm_121": ("HMMA", "HGMMA")}


@pytest.fixture(params=[pytest.param("sm_90", marks=pytest.mark.slow), "sm_121"])
def architecture(request: pytest.FixtureRequest) -> str:
    if request.param == "sm_121" and importlib.metadata.version("triton") < "3.9":
        pytest.skip("the disassembler of Triton before 3.9 does not know sm_121")
    return request.param


SLOW = [pytest.param(format, marks=pytest.mark.slow) for format in ("bf16", "nvfp4_divisor", "mxfp4", "int4_g64")]


@pytest.mark.parametrize("format", ["fp8_block128_bf16", *SLOW])
def test_every_row_count_compiles_to_the_one_instruction_class(architecture: str, format: str) -> None:
    from bench.compiled import linear_row

    for rows in (1, 17, 64, 300):
        row = linear_row(format, rows, architecture)
        assert row["class"] == CLASSES[architecture][0]
        # The compiler of CI spills a little for sm_90, where that of the lent device, Triton 3.6, does not.
        assert row["spill_bytes"] == 0 or architecture == "sm_90"
        assert row["shared_bytes"] <= LIMITS[architecture]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["fp8_block128_bf16", "nvfp4"])
def test_experts_compile_to_the_one_instruction_class(architecture: str, format: str) -> None:
    from bench.compiled import compiled, expert_launches

    for rows in (1, 16, 2048):  # a part to a program, gate and up and the activation in one, tiles of many pairs
        for launch in expert_launches(format, rows, architecture).values():
            found = compiled(launch, architecture)
            wanted, other = CLASSES[architecture]
            assert any(code.startswith(f"{wanted}.") for code in found.opcodes)
            assert not any(code.startswith(f"{other}.") for code in found.opcodes)
            assert found.stack <= 8  # the assembler of Triton 3.9 may put two registers away for one more block
            assert found.shared <= LIMITS[architecture]


def test_no_kernel_mixes_instruction_classes(architecture: str) -> None:
    from bench.compiled import compiled, launches

    for launch in launches("fp8_block128_bf16", 16, architecture):
        codes = compiled(launch, architecture).opcodes
        assert not any(code.startswith(f"{CLASSES[architecture][1]}.") for code in codes), codes


@pytest.mark.slow
def test_the_likeliest_ids_and_the_normaliser_compile_without_spills(architecture: str) -> None:
    from bench.compiled import compiled, launched
    from dgpp.kernels.pick.triton import likeliest

    logits, temperature = jax.ShapeDtypeStruct((16, 151936), jnp.float32), jax.ShapeDtypeStruct((16,), jnp.float32)
    call = partial(likeliest, slices=even_ranges(151936))
    made = {one.kernel.__name__: one for one in launched(call, logits, temperature, architecture=architecture)}
    assert set(made) == {"best_of_chunk", "chunk_terms"}
    found = {name: compiled(launch, architecture) for name, launch in made.items()}
    assert all(one.stack == 0 and one.shared <= LIMITS[architecture] for one in found.values())
    # 15 fused steps an exponential, and none but these: a thread has 8 terms.
    assert found["chunk_terms"].opcodes["DFMA"] == 15 * 8


@pytest.mark.parametrize("format", ["bf16", "fp8_tensor", "mxfp8", "nvfp4", "nvfp4_divisor"])
def test_rows_of_a_table_compile_without_spills(architecture: str, format: str) -> None:
    from bench.compiled import compiled, launched
    from dgpp.formats import Weight, format_named
    from dgpp.kernels import select

    fields = format_named(format).arrays((2000, 160)).items()
    arrays = {name: jax.ShapeDtypeStruct((2, *one.shape), one.dtype) for name, one in fields if one.resident}
    ids, layer = jax.ShapeDtypeStruct((4, 16), jnp.int32), jax.ShapeDtypeStruct((), jnp.int32)
    gather = select("triton").gather_rows
    (launch,) = launched(gather, Weight(arrays, format, (2000, 160)), layer, ids, architecture=architecture)
    assert compiled(launch, architecture).stack == 0
