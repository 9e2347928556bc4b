"""From LLVM IR to an address that can be called, in this process."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from dgpp.kernels.native.target import Target, host_target


def machine(target: Target, triple: str = "", cpu: str = "", features: str = "") -> Any:
    """LLVM's machine for `target`: this one, or with a `triple` another that code is only compiled for."""
    if not triple:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        triple, cpu = llvm.get_process_triple(), llvm.get_host_cpu_name()
        features = llvm.get_host_cpu_features().flatten()
    features = ",".join(filter(None, [features, target.options]))
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=3, jit=True)


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


class Engine:
    """Compiled code of this process, for one target. Modules see each other's functions and globals by name."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._machine = machine(target)
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine(target))
        # Helper threads may be inside the code until the process ends: one reference too many, and it stays mapped.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._engine))

    def load(self, module: ir.Module) -> None:
        """Compiles `module`."""
        self._engine.add_module(optimized(module, self._machine))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """The address of a function or global of a loaded module."""
        return int(self._engine.get_function_address(name) or self._engine.get_global_value_address(name))


@functools.cache
def engine() -> Engine:
    """The one engine of the kernels. Raises RuntimeError where the host has no target."""
    target = host_target()
    if target is None:
        raise RuntimeError(
            "native kernels need Linux or macOS on x86-64 with AVX2 and FMA, or on aarch64; use the kernels 'reference'"
        )
    return Engine(target)
