"""One call of a Triton kernel from JAX: through jax-triton on a GPU, or through Triton's interpreter on a CPU.

The interpreter is Triton's own: it is on when `TRITON_INTERPRET=1` stood in the environment before triton was imported.
A call is then a host callback that runs the kernel's Python source over NumPy arrays, program by program.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ASSEMBLY = not INTERPRETED
"""Whether kernels may use inline PTX; the interpreter runs their plain forms, which have the same bits."""


@dataclass(frozen=True)
class Out:
    """An output: its shape and dtype, and the index of the argument whose memory it takes over, if any."""

    shape: tuple[int, ...]
    dtype: Any
    alias: int | None = None


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
    import jax_triton

    options: dict[str, Any] = {"num_warps": warps, "num_stages": stages}
    aliases = {out.alias: i for i, out in enumerate(outs) if out.alias is not None}
    if aliases:
        options["input_output_aliases"] = aliases
    # jax-triton 0.4 renamed the outputs and moved the compiler's options; it also pins the PTX version that the
    # assembler of CUDA 13.0 reads.
    if "out_shape" in inspect.signature(jax_triton.triton_call).parameters:
        options |= {"out_shape": shapes, "enable_fp_fusion": False}
    else:
        options |= {"out_type": shapes, "backend_options": {"enable_fp_fusion": False, "ptx_version": 88}}
    return tuple(jax_triton.triton_call(*arguments, kernel=kernel, grid=grid, **options, **constants))
