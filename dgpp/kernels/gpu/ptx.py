"""A Triton kernel as PTX that takes nothing but its arrays, for XLA to launch itself."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

NEWEST = 90
"""The PTX version that drivers of CUDA 13.0 read; Triton writes what its own assembler reads."""
ALIGNED = 16  # bytes: what every array begins at a multiple of
STATIC = 48 << 10  # bytes of shared memory that a kernel may declare


@dataclass(frozen=True)
class Ptx:
    """A kernel's text, the name of its entry, and what a launch has to give it."""

    name: str
    text: str
    shared: int  # bytes of shared memory, above those that the text declares
    threads: int  # of a program


def ptx(
    kernel: Any, types: Sequence[str], constants: Mapping[str, Any], *, architecture: str, warps: int, stages: int
) -> Ptx:
    """`kernel` for arrays of `types` (Triton's names of pointers) in order, and `constants`; compiled once.

    Raises ValueError for a kernel that asks for memory of Triton's own.
    """
    return _ptx(kernel, tuple(types), tuple(constants.items()), architecture, warps, stages)


@functools.cache
def _ptx(
    kernel: Any,
    types: tuple[str, ...],
    constants: tuple[tuple[str, Any], ...],
    architecture: str,
    warps: int,
    stages: int,
) -> Ptx:
    made = compiled(kernel, types, dict(constants), architecture=architecture, warps=warps, stages=stages)
    meta = made.metadata
    if meta.global_scratch_size or meta.profile_scratch_size:
        raise ValueError(f"{meta.name}: a kernel that takes scratch memory of Triton's cannot be launched")
    text, asked = declared(bare(made.asm["ptx"], meta.name, len(types)), meta.shared)
    return Ptx(meta.name, text, asked, 32 * meta.num_warps)


def compiled(
    kernel: Any, types: Sequence[str], constants: Mapping[str, Any], *, architecture: str, warps: int, stages: int
) -> Any:
    """What Triton makes of a kernel, on any machine: its texts by stage under `asm`, and `metadata`. Arguments as in
    `ptx`. Contraction of products and sums is off."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    # Lines would bring this machine's paths into the text, and so into the key of XLA's cache of compiled programs.
    triton.knobs.compilation.disable_line_info = True
    names = kernel.arg_names
    arrays = [name for name in names if name not in constants]
    signature = dict.fromkeys(names, "constexpr") | dict(zip(arrays, types, strict=True))
    aligned = {(names.index(name),): [["tt.divisibility", ALIGNED]] for name in arrays}
    number = int(architecture.removeprefix("sm_"))
    options = {"num_warps": warps, "num_stages": stages, "enable_fp_fusion": False, "ptx_version": _version(number)}
    source = ASTSource(kernel, signature, dict(constants), aligned)
    return triton.compile(source, target=GPUTarget("cuda", number, 32), options=options)


def _version(arch: int) -> int:
    """The version of PTX that both Triton's assembler and NEWEST allow."""
    from triton.backends.nvidia.compiler import get_ptxas, ptx_get_version

    return min(ptx_get_version(get_ptxas(arch).version), NEWEST)


def bare(text: str, name: str, count: int) -> str:
    """PTX whose entry `name` has the first `count` parameters only: Triton appends pointers to scratch memory.

    Raises ValueError where one of the others is read.
    """
    found = re.search(rf"\.entry\s+{re.escape(name)}\(([^)]*)\)", text)
    parameters = [line.strip() for line in found[1].split(",")] if found else []
    if found is None or len(parameters) < count:
        raise ValueError(f"{name}: {len(parameters)} parameters in the PTX of a kernel of {count} arrays")
    rest = text[: found.start(1)] + "\n\t" + ",\n\t".join(parameters[:count]) + "\n" + text[found.end(1) :]
    for parameter in parameters[count:]:
        if re.search(rf"\b{re.escape(parameter.split()[-1])}\b", rest):
            raise ValueError(f"{name} reads {parameter.split()[-1]}, which a launch does not give it")
    return rest


def declared(text: str, shared: int) -> tuple[str, int]:
    """PTX that declares its shared memory where it may, and the bytes that a launch is to ask for besides.

    XLA takes a launch that asks for shared memory as one that wants all of it: the multiprocessor is left with the
    least of first-level cache. Kernels of little shared memory read numbers of groups through that cache, a word of
    many rows at a time, and would fetch each line several times.
    """
    if not 0 < shared <= STATIC:
        return text, shared
    found, count = re.subn(r"\.extern (\.shared [^;\[]*)\[\]", rf"\1[{shared}]", text)
    return (found, 0) if count == 1 else (text, shared)
