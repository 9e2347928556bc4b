"""Kernels compiled for an architecture on a machine without it: Triton's compiler, its assembler, its disassembler.

launched(function, *arguments) -> the launches that tracing `function` makes
compiled(launch, "sm_121") -> registers, shared memory, spills and instructions
"""

from __future__ import annotations

import collections
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp

from dgpp.kernels.gpu.launch import Out

TYPES = {"bfloat16": "*bf16", "float16": "*fp16", "float32": "*fp32", "int32": "*i32", "uint8": "*u8", "int8": "*i8"}
WIDE = ("F2FP", "HGMMA", "LDS", "STS", "LDG", "LDGSTS", "STG", "LDSM", "HMMA", "SHFL")


@dataclass(frozen=True)
class Launch:
    kernel: Any
    types: tuple[str, ...]
    grid: tuple[int, ...]
    constants: Mapping[str, Any]
    warps: int
    stages: int


@dataclass(frozen=True)
class Compiled:
    registers: int
    stack: int
    shared: int
    loop: int  # instructions of the main loop
    opcodes: Mapping[str, int] = field(repr=False)  # of the whole kernel
    in_loop: Mapping[str, int] = field(repr=False)


def launched(function: Callable[..., Any], *arguments: Any, module: str, architecture: str) -> list[Launch]:
    """The launches of `function`, whose kernels are called through `launch` of `module`; nothing runs."""
    seen: list[Launch] = []

    def record(
        kernel: Any,
        arguments: Sequence[jax.Array],
        outs: Sequence[Out],
        grid: tuple[int, ...],
        constants: Mapping[str, Any],
        *,
        warps: int,
        stages: int,
    ) -> tuple[jax.Array, ...]:
        types = tuple(TYPES[jnp.dtype(a.dtype).name] for a in (*arguments, *outs))
        seen.append(Launch(kernel, types, grid, dict(constants), warps, stages))
        return tuple(jnp.zeros(out.shape, out.dtype) for out in outs)

    with mock.patch.multiple(module, create=True, launch=record, architecture=lambda: architecture):
        jax.eval_shape(function, *arguments)
    return seen


def compiled(launch: Launch, architecture: str) -> Compiled:
    """What the assembler reports, and the instructions it chose."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    number = int(architecture.removeprefix("sm_"))
    names = launch.kernel.arg_names
    pointers = [name for name in names if name not in launch.constants]
    signature = dict.fromkeys(names, "constexpr")
    signature |= dict(zip(pointers, launch.types, strict=True))
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in pointers}
    source = ASTSource(launch.kernel, signature, dict(launch.constants), aligned)
    options = {"num_warps": launch.warps, "num_stages": launch.stages, "enable_fp_fusion": False}
    made = triton.compile(source, target=GPUTarget("cuda", number, 32), options=options)
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(made.asm["cubin"])

        def tool(*command: str) -> str:
            return subprocess.run([*command, str(cubin)], check=True, capture_output=True, text=True).stdout

        usage = tool(str(tools / "cuobjdump"), "-res-usage")
        lines = tool(str(tools / "nvdisasm"), "-c").splitlines()
    figures = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    start, stop = _main_loop(lines)
    loop = _opcodes(lines[start : stop + 1])
    return Compiled(
        figures["REG"],
        figures["STACK"] + figures["LOCAL"],
        made.metadata.shared,
        sum(loop.values()),
        _opcodes(lines),
        loop,
    )


def _main_loop(lines: Sequence[str]) -> tuple[int, int]:
    """First and last line of the longest stretch that a branch repeats."""
    labels = {match[1]: i for i, line in enumerate(lines) if (match := re.match(r"(\.L_x_\d+):", line))}
    found = (0, -1)
    for i, line in enumerate(lines):
        match = re.search(r"BRA.*`\((\.L_x_\d+)\)", line)
        if match and labels[match[1]] < i and i - labels[match[1]] > found[1] - found[0]:
            found = (labels[match[1]], i)
    return found


def _opcodes(lines: Sequence[str]) -> collections.Counter[str]:
    counted: collections.Counter[str] = collections.Counter()
    for line in lines:
        match = re.search(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", line)
        if match:
            name, *rest = match[1].split(".")
            counted[f"{name}.{rest[0]}" if name in WIDE and rest else name] += 1
    return counted
