"""The instruction sets that this machine may not have: their code is compiled, their register widths are run here."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import llvmlite.binding as llvm
import numpy as np
import pytest

from dgpp.formats import Weight
from dgpp.formats.bf16 import BFLOAT16
from dgpp.kernels.attention import cpu as attention_cpu
from dgpp.kernels.attention.native import attention_module
from dgpp.kernels.linear import cpu as linear_cpu
from dgpp.kernels.linear.native import linear_module
from dgpp.kernels.native.compile import Engine, engine, machine, optimized
from dgpp.kernels.native.dot import dot_module
from dgpp.kernels.native.target import TARGETS, Target
from dgpp.kernels.native.threads import pool_module
from dgpp.kernels.shapes import SMALL_ATTENTION, SMOLLM2_135M_ATTENTION, AttentionShape
from tests.kernels import orders
from tests.kernels.same import assert_same_bits
from tests.kernels.test_attention import RAGGED, batch

PROCESSORS = {
    "avx512": ("x86_64-unknown-linux-gnu", "skylake-avx512", r"vfmadd231ps\s.*%zmm"),
    "avx2": ("x86_64-unknown-linux-gnu", "haswell", r"vfmadd231ps\s.*%ymm"),
    "neon": ("aarch64-unknown-linux-gnu", "cortex-x925", r"fmla\s+v\d+\.4s"),
}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_the_tiles_compile_to_fused_vectors_without_spills(target: Target) -> None:
    triple, cpu, fused = PROCESSORS[target.name]
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    there = machine(target, triple, cpu)
    for builder in (pool_module, linear_module, attention_module):
        assert there.emit_object(optimized(builder(target), there))
    loops = inner_loops(there.emit_assembly(optimized(dot_module(target), there)), fused)
    for tile in target.tiles:
        size = tile.rows * tile.columns * tile.groups
        assert any(len(re.findall(fused, loop)) == size for loop in loops), tile
    for loop in loops:  # the sums stay in registers: nothing is stored while they grow
        assert not re.search(r"\S+, -?\d*\(%r[sb]p\)|\bst[pr]\s", loop), loop


def inner_loops(code: str, fused: str) -> list[str]:
    """The loops of one block, label to branch, that have a fused multiply-add."""
    blocks = re.findall(r"^(\.LBB\w+):(.*?)(?=^\.LBB|\Z)", code, re.M | re.S)
    heads = [re.split(rf"^.*\s{re.escape(label)}$", block, maxsplit=1, flags=re.M) for label, block in blocks]
    loops = [parts[0] for parts in heads if len(parts) == 2 and re.search(fused, parts[0])]
    assert loops
    return loops


def narrow(width: int) -> Target:
    """The host's target with registers of another width: LLVM makes them of what there is."""
    host = engine().target
    other = next(target for target in TARGETS if target.width == width)
    return replace(host, width=width, tiles=other.tiles, heads=other.heads, accumulators=other.accumulators)


@pytest.fixture(scope="module", params=[width for width in (4, 8, 16) if width != engine().target.width])
def names(request: pytest.FixtureRequest) -> dict[str, str]:
    """The kernels of one register width, under names of their own."""
    one = Engine(narrow(request.param))
    found = {}
    for builder in (pool_module, dot_module, linear_module, attention_module):
        one.load(builder(one.target))
    for module in (linear_cpu, attention_cpu):
        name = f"{module.NAME}_test_{request.param}"
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(ctypes.c_void_p(one.address(module.NAME))), platform="cpu")
        found[module.NAME] = name
    return found


def test_linear_of_any_register_width(names: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear_cpu, "register", lambda *_: None)
    monkeypatch.setattr(linear_cpu, "NAME", names[linear_cpu.NAME])
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32).astype(BFLOAT16) for shape in ((23, 83), (2, 41, 83)))
    ranges = ((0, 16), (16, 50), (50, 83), (0, 83))
    weight = Weight({"values": jnp.asarray(w)}, "bf16", (41, 83))
    for rows in (1, 2, 3, 4, 5, 6, 7, 12, 23):
        call = jax.jit(lambda x, w: linear_cpu.linear_leaves(x, w, jnp.int32(1), jnp.int32(x.shape[0]), ranges))
        assert_same_bits(call(x[:rows], weight), orders.linear_leaves(x[:rows], w, 1, rows, ranges))


@pytest.mark.parametrize("shape", [*SMALL_ATTENTION, SMOLLM2_135M_ATTENTION], ids=lambda shape: shape.name)
def test_attention_of_any_register_width(
    names: dict[str, str], monkeypatch: pytest.MonkeyPatch, shape: AttentionShape
) -> None:
    monkeypatch.setattr(attention_cpu, "register", lambda *_: None)
    monkeypatch.setattr(attention_cpu, "NAME", names[attention_cpu.NAME])
    one = batch(shape, RAGGED)
    call = jax.jit(lambda *operands: attention_cpu.attention(*operands, jnp.int32(0), scale=one.scale))
    operands = (one.q, one.k, one.v, one.cache_k, one.cache_v, one.layer, one.page_table, one.position, one.slot)
    found = call(*operands, one.kv_index, one.used)
    for value, expected in zip(found, one.expected(), strict=True):
        assert_same_bits(value, expected)
