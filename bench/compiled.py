"""Kernels compiled for an architecture on a machine without it: Triton's compiler, its assembler, its disassembler.

launched(function, *arguments) -> the launches that tracing `function` makes
compiled(launch, "sm_121") -> registers, shared memory, spills and instructions
"""

from __future__ import annotations

import argparse
import collections
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp

from bench import attention
from dgpp.formats import Weight, format_named
from dgpp.formats.base import ANY
from dgpp.kernels import select
from dgpp.kernels.experts import triton as experts
from dgpp.kernels.gpu import launch as gpu
from dgpp.kernels.gpu import ptx
from dgpp.kernels.gpu.launch import Out, pointer_to
from dgpp.kernels.linear.triton import linear
from dgpp.ops.records import write_record

FORMATS = (
    *("bf16", "fp8_block128_bf16", "fp8_channel", "nvfp4_divisor", "mxfp4", "mxfp8", "int4_g64", "int8_g64"),
    *("bf12", "nf4i8", "mixed346_3", "mixed346_4", "mixed346_6", "exl3_4_mul1", "exl3_3.5_mul1", "exl3_3_3inst"),
    *("int8_planes_g128", "gptq_int4_g128_asym_v1", "gptq_int8_g128_asym_v1"),
)
SHAPE = (17408, 5120)  # of gate_proj and up_proj of Qwen3.8-27B
EXPERTS = (256, 1024, 3072, 8)  # of Qwen3.5-122B-A10B: how many, I, D, and how many a row takes
EXPERT_FORMATS = ("fp8_block128_bf16", "nvfp4", "mxfp4_deepseek")
ATTENTION_ROWS = (1, 2048)
GB10_READ = 232e9  # bytes a second
GB10_ISSUE = 4 * 48 * 2.4e9  # warp instructions a second
WIDE = ("F2FP", "HGMMA", "LDS", "STS", "LDG", "LDGSTS", "STG", "LDSM", "HMMA", "SHFL", "IGMMA", "IMMA")
INSTRUCTIONS = ("HGMMA", "IGMMA", "HMMA", "IMMA")
SOME = 8  # the length of what follows from the data


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
    loop: int  # instructions of the main loop, 0 when it is unrolled whole
    opcodes: Mapping[str, int] = field(repr=False)  # of the whole kernel
    in_loop: Mapping[str, int] = field(repr=False)


def launched(function: Callable[..., Any], *arguments: Any, architecture: str) -> list[Launch]:
    """The launches of `function` on an architecture, whatever module makes them; nothing runs."""
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
        types = tuple(pointer_to(array) for array in (*arguments, *outs))
        seen.append(Launch(kernel, types, grid, dict(constants), warps, stages))
        return tuple(jnp.zeros(out.shape, out.dtype) for out in outs)

    found = ((gpu.launch, record), (gpu.architecture, lambda: architecture))
    with ExitStack() as patches:
        for name, module in list(sys.modules.items()):
            for real, replacement in found:
                if name.startswith("dgpp.") and getattr(module, real.__name__, None) is real:
                    patches.enter_context(mock.patch.object(module, real.__name__, replacement))
        jax.eval_shape(lambda *values: function(*values), *arguments)  # a function of its own: JAX keeps traces
    return seen


def compiled(launch: Launch, architecture: str, pick: Callable[..., Any] = max) -> Compiled:
    """What the assembler reports, and the instructions it chose; `pick` of the loops with products, by their length."""
    import triton

    options = {"architecture": architecture, "warps": launch.warps, "stages": launch.stages}
    made = ptx.compiled(launch.kernel, launch.types, launch.constants, **options)
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with TemporaryDirectory() as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(made.asm["cubin"])

        def tool(*command: str) -> str:
            return subprocess.run([*command, str(cubin)], check=True, capture_output=True, text=True).stdout

        usage = tool(str(tools / "cuobjdump"), "-res-usage")
        lines = tool(str(tools / "nvdisasm"), "-c").splitlines()
    figures = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", usage)}
    start, stop = _main_loop(lines, pick)
    loop = _opcodes(lines[start : stop + 1])
    return Compiled(
        figures["REG"],
        figures["STACK"] + figures["LOCAL"],
        made.metadata.shared,
        sum(loop.values()),
        _opcodes(lines),
        loop,
    )


def _main_loop(lines: Sequence[str], pick: Callable[..., Any]) -> tuple[int, int]:
    """First and last line of a stretch with matrix instructions that a branch repeats, and that holds no such stretch
    itself: the longest or the shortest, as `pick` is max or min; (0, -1) if none is."""
    labels = {match[1]: i for i, line in enumerate(lines) if (match := re.match(r"(\.L_x_\d+):", line))}
    found = []
    for i, line in enumerate(lines):
        match = re.search(r"BRA.*`\((\.L_x_\d+)\)", line)
        start = labels.get(match[1], i) if match else i
        if any("MMA" in line for line in lines[start:i]):
            found.append((start, i))
    inner = [(a, b) for a, b in found if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in found)]
    found = pick(inner, key=lambda loop: loop[1] - loop[0], default=(0, -1))
    return found[0], found[1]


def _opcodes(lines: Sequence[str]) -> collections.Counter[str]:
    counted: collections.Counter[str] = collections.Counter()
    for line in lines:
        match = re.search(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", line)
        if match:
            name, *rest = match[1].split(".")
            counted[f"{name}.{rest[0]}" if name in WIDE and rest else name] += 1
    return counted


def launches(format: str, rows: int, architecture: str) -> list[Launch]:
    """The launches of `linear` on a weight of SHAPE."""
    kind, scalar = format_named(format), jax.ShapeDtypeStruct((), jnp.int32)
    resident = {name: array for name, array in kind.arrays(SHAPE).items() if array.resident}
    stack = {
        name: jax.ShapeDtypeStruct((2, *(SOME if size == ANY else size for size in array.shape)), array.dtype)
        for name, array in resident.items()
    }
    x, w = jax.ShapeDtypeStruct((rows, SHAPE[1]), jnp.bfloat16), Weight(stack, format, SHAPE)
    return launched(linear, x, w, scalar, scalar, architecture=architecture)


def linear_row(format: str, rows: int, architecture: str) -> dict[str, Any]:
    """A row of the record: the product kernel of one format at one number of rows."""
    launch = next(one for one in launches(format, rows, architecture) if one.kernel.__name__ == "product")
    found = compiled(launch, architecture)
    # A short range is unrolled whole: then the kernel is the loop.
    issued, along = (found.loop, "BK") if found.loop else (sum(found.opcodes.values()), "LENGTH")
    per_weight = issued / (launch.constants["BN"] * launch.constants[along] / (32 * launch.warps))
    return _row("linear", format, rows, architecture, found, per_weight, SHAPE)


def expert_launches(format: str, rows: int, architecture: str) -> dict[str, Launch]:
    """The product of `grouped_gated` and that of `grouped_down`, by op, for the experts of EXPERTS."""
    held, inner, d, chosen = EXPERTS
    scalar, kind = jax.ShapeDtypeStruct((), jnp.int32), format_named(format)

    def weight(n: int, k: int) -> Weight:
        shape = (held, n, k)
        resident = {name: array for name, array in kind.arrays(shape).items() if array.resident}
        stack = {name: jax.ShapeDtypeStruct((2, *array.shape), array.dtype) for name, array in resident.items()}
        return Weight(stack, format, shape)

    def gated(x: Any, ids: Any, gate: Weight, up: Weight, at: Any) -> jax.Array:
        return experts.grouped_gated(x, ids, (gate, up), (at, at), at, at)

    def down(act: Any, ids: Any, weights: Any, w: Weight, at: Any) -> jax.Array:
        leaves = tuple((i * inner // 4, (i + 1) * inner // 4) for i in range(4))
        return experts.grouped_down(act, ids, weights, w, at, at, leaves, at)

    def bf16(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16)

    ids, opened = jax.ShapeDtypeStruct((rows, chosen), jnp.int32), weight(inner, d)
    made = {
        "grouped_gated": launched(gated, bf16(rows, d), ids, opened, opened, scalar, architecture=architecture),
        "grouped_down": launched(
            down,
            bf16(rows, chosen, inner),
            ids,
            bf16(rows, chosen),
            weight(d, inner),
            scalar,
            architecture=architecture,
        ),
    }
    return {op: next(one for one in found if one.kernel.__name__ == "grouped") for op, found in made.items()}


def expert_rows(format: str, rows: int, architecture: str) -> list[dict[str, Any]]:
    """Rows of the record: the products of both ops at one number of rows. Leaves follow each other in one loop, so its
    instructions hold those that end a leaf, which most steps skip."""
    found = []
    for op, launch in expert_launches(format, rows, architecture).items():
        made = compiled(launch, architecture)
        multiplied = sum(count for code, count in (made.in_loop or made.opcodes).items() if code.startswith("HMMA"))
        issued = made.loop or sum(made.opcodes.values())
        # An HMMA takes 16 x 16 weights for 8 rows. Loops may be unrolled in part, so it tells how many are in one.
        per_weight = issued * launch.constants["BR"] / (64 * multiplied) if multiplied else 0.0  # of an HGMMA unknown
        found.append(_row(op, format, rows, architecture, made, per_weight, EXPERTS[:3]))
    return found


def attention_launches(shape: attention.Shape, rows: int, context: int, architecture: str) -> list[Launch]:
    """The launches of attention, or of sparse attention and its indexer, for rows that decode or a prompt's."""
    select("triton")  # whose modules are to be there when their launches are listened to
    fixed, caches = jax.eval_shape(lambda: attention.operands(shape, rows, context, prefill=rows > 64))
    if shape.block:
        fixed = jax.eval_shape(lambda fixed, caches: attention.indexed(shape, fixed, caches), fixed, caches)

    def call(layer: Any, k: Any, v: Any, fixed: Any) -> Any:
        return attention.attention(shape, layer, k, v, fixed)

    return launched(call, jax.ShapeDtypeStruct((), jnp.int32), *caches, fixed, architecture=architecture)


def attention_row(shape: attention.Shape, rows: int, context: int, architecture: str) -> dict[str, Any]:
    """A row of the record: the kernel that attends, in the blocks of tokens that all rows of a tile see whole.

    `instructions_ratio` are those of a thread for a value of the cache. `loop_spills_count` are loads and stores of
    spilled registers in that loop; `spill_bytes` holds those of the rarer paths too.
    """
    launch = next(one for one in attention_launches(shape, rows, context, architecture) if "BLOCK" in one.constants)
    found = compiled(launch, architecture, pick=min)
    values = launch.constants["BLOCK"] * (shape.dim + min(shape.dim_v, launch.constants["VALUES"]))
    op = "sparse_attention" if shape.block else "attention"
    row: dict[str, Any] = {
        "name": f"{op}, {shape.name}, {shape.format}, {rows} rows",
        "kernel": op,
        "format": shape.format,
        "class": next(name for name in INSTRUCTIONS if any(code.startswith(name) for code in found.opcodes)),
        "rows": rows,
        "registers_count": found.registers,
        "shared_bytes": found.shared,
        "spill_bytes": found.stack,
        "loop_spills_count": found.in_loop.get("LDL", 0) + found.in_loop.get("STL", 0),
        "instructions_ratio": found.loop * 32 * launch.warps / values,
    }
    if architecture == "sm_121":
        seconds = values * (2 if shape.format == "bf16" else 1) / GB10_READ
        row["instruction_bound_ratio"] = found.loop * launch.warps / GB10_ISSUE / seconds
    return row


def _row(
    kernel: str, format: str, rows: int, architecture: str, found: Compiled, per_weight: float, shape: tuple[int, ...]
) -> dict[str, Any]:
    row = {
        "name": f"{kernel}, {format}, {rows} rows",
        "kernel": kernel,
        "format": format,
        "class": next(name for name in INSTRUCTIONS if any(code.startswith(name) for code in found.opcodes)),
        "rows": rows,
        "registers_count": found.registers,
        "shared_bytes": found.shared,
        "spill_bytes": found.stack,
    }
    if per_weight:
        row["instructions_ratio"] = per_weight
    if architecture == "sm_121":
        seconds = format_named(format).bytes_per_weight(shape) / GB10_READ
        row["instruction_bound_ratio"] = per_weight / 32 / GB10_ISSUE / seconds
    return row


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.compiled", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--architecture", default="sm_121")
    parser.add_argument("--rows", type=int, nargs="*", default=[16, 64, 2048])
    parser.add_argument("--record", action="store_true", help="write bench/records/<architecture>/compiled.json")
    options = parser.parse_args(arguments)
    found = []
    for format in FORMATS:
        for rows in options.rows:
            found.append(linear_row(format, rows, options.architecture))
            print(found[-1], flush=True)
    for format in EXPERT_FORMATS:
        for rows in options.rows:
            found += expert_rows(format, rows, options.architecture)
            print(*found[-2:], sep="\n", flush=True)
    for shape in (*attention.SHAPES, attention.SPARSE):
        for rows in ATTENTION_ROWS:
            found.append(attention_row(shape, rows, attention.PREFILL[1], options.architecture))
            print(found[-1], flush=True)
    if options.record:
        extra = {
            "triton": importlib.metadata.version("triton"),
            "shape": "x".join(map(str, SHAPE)),
            "experts": "x".join(map(str, EXPERTS)),
        }
        print(write_record("compiled", found, device=options.architecture, extra=extra))
    return 0


if __name__ == "__main__":
    sys.exit(main())
