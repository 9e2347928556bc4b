"""From LLVM IR to an address that can be called, in this process."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from dgpp.kernels.native.target import Target, host_target


def required_target() -> Target:
    """The host's target. Raises RuntimeError where there is none."""
    target = host_target()
    if target is None:
        raise RuntimeError(
            "native kernels need a POSIX x86-64 with AVX2 and FMA, or an aarch64; choose the kernels 'reference'"
        )
    return target


def optimized(module: ir.Module, machine: Any) -> Any:
    """The module, verified and optimized for `machine`."""
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    # The IR is written as the loops and vectors it should be. What is left is to put variables in registers and to tidy
    # up: LLVM's own pipelines take ten times as long and change nothing that can be measured.
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.add_loop_rotate_pass()
    passes.run(parsed, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return parsed


def host_machine(target: Target) -> Any:
    """LLVM's machine for the host, with what `target` adds."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = ",".join(filter(None, [llvm.get_host_cpu_features().flatten(), target.options]))
    triple = llvm.Target.from_triple(llvm.get_process_triple())
    return triple.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3, jit=True)


@functools.cache
def _machine() -> Any:
    return host_machine(required_target())


@functools.cache
def _engine() -> Any:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), host_machine(required_target()))
    # Helper threads may be inside the code until the process ends: one reference too many, and it is never unmapped.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))
    return engine


def load(module: ir.Module) -> None:
    """Compiles `module`; its functions and globals can then be found by name, by other modules too."""
    engine = _engine()
    engine.add_module(optimized(module, _machine()))
    engine.finalize_object()


def address(name: str) -> int:
    """The address of a function or global of a loaded module."""
    found: int = _engine().get_function_address(name) or _engine().get_global_value_address(name)
    return found
