"""One call of a Triton kernel from JAX: as PTX that XLA launches on a GPU, or through Triton's interpreter on a CPU.

XLA takes kernels of PTX into the graphs of launches in which it runs its own, so one follows the other at once and no
host stands between them.

The interpreter is Triton's own: it is on when `TRITON_INTERPRET=1` stood in the environment before triton was imported.
A call is then a host callback that runs the kernel's Python source over NumPy arrays, program by program.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from dgpp.kernels.gpu.ptx import ptx

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ASSEMBLY = not INTERPRETED
"""Whether kernels may use inline PTX; the interpreter runs their plain forms, which have the same bits."""

NAMES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint32": "u32",
}
"""Triton's names of the dtypes that kernels meet."""


@dataclass(frozen=True)
class Out:
    """An output: its shape and dtype, and the index of the argument whose memory it takes over, if any."""

    shape: tuple[int, ...]
    dtype: Any
    alias: int | None = None


def pointer_to(array: Any) -> str:
    """Triton's name of the type of a pointer to the elements of an array."""
    return "*" + NAMES[np.dtype(array.dtype).name]


def architecture() -> str:
    """ "sm_90", "sm_121", ...: the compute capability of the first device; "sm_90" in the interpreter."""
    if INTERPRETED:
        return "sm_90"
    device = jax.devices()[0]
    capability = getattr(device, "compute_capability", None)
    if capability is None:
        raise RuntimeError(f'kernels "triton" need a CUDA device, and JAX found {device.platform}')
    return "sm_" + str(capability).replace(".", "")


def launch(
    kernel: Any,
    arguments: Sequence[jax.Array],
    outs: Sequence[Out],
    grid: tuple[int, ...],
    constants: Mapping[str, Any],
    *,
    warps: int,
    stages: int,
) -> tuple[jax.Array, ...]:
    """The outputs of `kernel(*arguments, *outs, **constants)` over `grid`.

    `constants` are the kernel's `tl.constexpr` parameters. Contraction of products and sums is off: a kernel that
    wants a fused multiply-add says so. An output with an alias starts with that argument's values.
    """
    shapes = [jax.ShapeDtypeStruct(out.shape, out.dtype) for out in outs]
    if INTERPRETED:

        def host(*values: Any) -> tuple[np.ndarray, ...]:
            from dgpp.kernels.gpu.interpret import interpret

            return interpret(kernel, [np.asarray(value) for value in values], outs, grid, constants)

        return tuple(jax.pure_callback(host, tuple(shapes), *arguments))
    types = [pointer_to(array) for array in (*arguments, *shapes)]
    made = ptx(kernel, types, constants, architecture=architecture(), warps=warps, stages=stages)
    x, y, z = (*grid, 1, 1)[:3]
    numbers = {"grid_x": x, "grid_y": y, "grid_z": z, "block_x": made.threads, "block_y": 1, "block_z": 1}
    numbers["shared_mem_bytes"] = made.shared
    call = jax.ffi.ffi_call(
        "__gpu$xla.gpu.ptx",
        shapes,
        input_output_aliases={out.alias: i for i, out in enumerate(outs) if out.alias is not None},
    )
    counts = {name: np.int32(number) for name, number in numbers.items()}
    return tuple(call(*arguments, name=made.name, kernel_type="ptx", kernel_data=made.text, **counts))
