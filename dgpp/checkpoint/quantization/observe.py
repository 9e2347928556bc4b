"""How a module is stored, told by its tensors alone: suffixes, dtypes and the ratios of shapes.

Where tensors cannot tell formats apart, all of them are possible and the config has to say: the sixteen levels of NF4I8
and of Mixed346 at 4 bits, and the two versions of asymmetric GPTQ zero points. Block sizes that are larger than the
matrix give one block whatever they are, so such formats are one and the same. A missing scale does not make a format
impossible, so that the inventory can name what is missing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dgpp.checkpoint.quantization.modules import BESIDE, Module
from dgpp.checkpoint.quantization.tags import UNQUANTIZED, agrees
from dgpp.checkpoint.reader import Checkpoint
from dgpp.formats.exl3_trellis import MARKERS
from dgpp.formats.fp8_block import FP8Block
from dgpp.formats.fp8_chunked import FP8Chunked
from dgpp.formats.gptq import GPTQ, zero_version
from dgpp.formats.packed_int import PackedInt

SIZES = (128, 64, 32, 16, 256, 512, 1024)
"""Block and group sizes, the usual one first."""

DENSE = {"BF16": "bf16", "F16": "f16", "F32": "f32"}
SCALES = ("weight_scale", "weight_scale_inv", "scale", "scales", "weight_scale_2", "weight_global_scale", "qzeros")


class Undecided(Exception):
    """The tensors of a module are stored in no way that is known; the message says what is strange about them."""


@dataclass(frozen=True)
class Possible:
    """The tags that tensors can be in; `same` when they are names of one thing, so that any will do.

    `partial` when a scale is missing that would say more.
    """

    tags: tuple[str, ...]
    same: bool = False
    partial: bool = False


def possible_tags(module: Module, checkpoint: Checkpoint) -> Possible:
    """The formats that a module's tensors can be in. Raises Undecided when there is none.

    Reads values only where headers are not enough: the shape of packed integers, the groups of GPTQ columns and its
    zero points.
    """
    payloads = module.payloads
    if not payloads:
        raise Undecided(f"its weight is missing; it has only {', '.join(map(repr, sorted(module.tensors)))}")
    if len(payloads) > 1:
        raise Undecided(f"it holds {' and '.join(map(repr, payloads))}, two forms of one weight")
    found = _KINDS[payloads[0]](module, checkpoint)
    strange = [suffix for suffix in module.others if suffix not in BESIDE]
    if strange and not agrees(found.tags[0], UNQUANTIZED):
        raise Undecided(f"it also holds {', '.join(map(repr, strange))}, which no format here applies to a weight")
    return found


def _bare(module: Module, checkpoint: Checkpoint) -> Possible:
    return Possible((DENSE.get(module.tag(""), module.tag("").lower()) + "_bare",))


def _weight(module: Module, checkpoint: Checkpoint) -> Possible:
    tag = module.tag("weight")
    if tag in DENSE:
        if scales := [suffix for suffix in SCALES if suffix in module.tensors]:
            raise Undecided(f"its weight is {tag} but {', '.join(map(repr, scales))} would scale it")
        return Possible((DENSE[tag],))
    if tag == "F8_E4M3":
        return _fp8(module)
    if tag in ("U8", "I8"):
        return _fp4(module)
    raise Undecided(f"its weight is stored as {tag}, which is no format here")


def _fp8(module: Module) -> Possible:
    """FP8 codes: the scale's name, dtype and grid say the rest."""
    if "weight_scale_inv" in module.tensors:
        return _blocks(module, "weight_scale_inv", {"F32": "F32", "BF16": "BF16"})
    if "scale" in module.tensors:
        return _blocks(module, "scale", {"F8_E8M0": "E8M0", "U8": "E8M0"})
    scale = module.tag("weight_scale")
    if scale in ("U8", "F8_E8M0"):
        return Possible(("mxfp8",))
    if scale in ("F32", "BF16"):
        kind = "channel" if math.prod(module.shape("weight_scale")) > 1 else "tensor"
        return Possible((f"fp8_{kind}" + ("_f32" if scale == "F32" else ""),))
    if scale:
        raise Undecided(f"its FP8 weight has a scale stored as {scale}")
    return Possible(("fp8_block128", "fp8_channel", "fp8_tensor", "mxfp8"), partial=True)


def _blocks(module: Module, suffix: str, dtypes: dict[str, str]) -> Possible:
    tag, grid, (rows, columns) = module.tag(suffix), module.shape(suffix), module.shape("weight")[-2:]
    if tag not in dtypes:
        raise Undecided(f"its {suffix!r} is stored as {tag}; it would be {' or '.join(dtypes)}")
    sizes = [_sizes(total, count) for total, count in zip((rows, columns), grid[-2:], strict=False)]
    if (tag, grid) == ("F32", _chunked_grid(rows, columns)) and not sizes[0]:
        return Possible((FP8Chunked().name,))
    if len(grid) < 2 or not all(sizes):
        raise Undecided(f"its {suffix!r} {list(grid)} is no grid of blocks over [{rows}, {columns}]")
    named = (FP8Block(rows, columns, dtypes[tag]).name for rows, columns in itertools.product(*sizes))
    return Possible(tuple(named), same=True)


def _chunked_grid(rows: int, columns: int) -> tuple[int, ...]:
    """The grid of scales that begins anew in every chunk of rows; () for a matrix that has no such chunks."""
    try:
        return FP8Chunked().arrays((rows, columns))["scale"].shape
    except ValueError:
        return ()


def _sizes(total: int, count: int) -> tuple[int, ...]:
    """The sizes of blocks of which `count` cover `total`: more than one only when one block covers everything."""
    sizes = SIZES if total in SIZES or count != 1 else (*SIZES, total)
    return tuple(size for size in (*sizes, 1) if -(-total // size) == count)


def _fp4(module: Module) -> Possible:
    """Bytes that hold two codes: what kind of scale there is says the rest."""
    for name in ("nvfp4", "mxfp4"):
        if any(suffix.startswith(f"weight_scale.{name}_csf") for suffix in module.tensors):
            return Possible((f"{name}_csf",))
    if "scale" in module.tensors:
        return Possible(("mxfp4_deepseek",))
    scale = module.tag("weight_scale")
    if scale == "F8_E4M3" or "weight_scale_2" in module.tensors:
        return Possible(("nvfp4",))
    if scale in ("U8", "F8_E8M0"):
        return Possible(("mxfp4",))
    if scale:
        raise Undecided(f"its {module.tag('weight')} weight has a scale stored as {scale}, which is no format here")
    return Possible(("nvfp4", "mxfp4", "mxfp4_deepseek"), partial=True)


def _packed(module: Module, checkpoint: Checkpoint) -> Possible:
    tag, scale = module.tag("weight_packed"), module.tag("weight_scale")
    if tag == "U8":
        if scale == "F8_E4M3" or "weight_global_scale" in module.tensors:
            return Possible(("nvfp4_divisor",))
        if scale in ("U8", "F8_E8M0"):
            return Possible(("mxfp4_packed",))
        return Possible(("nvfp4_divisor", "mxfp4_packed"), partial=True)
    if tag != "I32" or scale not in (*DENSE, ""):
        raise Undecided(f"its 'weight_packed' is stored as {tag} with a scale stored as {scale}")
    words, k = module.shape("weight_packed")[-1], _columns(module, checkpoint)
    bits = 32 * words // k if k else 0
    if bits not in (4, 8):
        raise Undecided(f"its {words} words a row hold {k} integers of {32 * words / max(1, k):g} bits, not 4 or 8")
    if not scale:
        return Possible((f"int{bits}_g64",), partial=True)
    sizes = _groups(k, module.shape("weight_scale")[-1])
    return Possible(tuple(PackedInt(bits, size, scale).name for size in sizes), same=True)


def _indices(module: Module, checkpoint: Checkpoint) -> Possible:
    words, k = module.shape("weight_indices")[-1], _columns(module, checkpoint)
    bits = 32 * words // k if k else 0
    if bits == 4:
        return Possible(("nf4i8", "mixed346_4"))
    if bits in (3, 6):
        return Possible((f"mixed346_{bits}",))
    raise Undecided(f"its {words} words a row hold {k} indices of {32 * words / max(1, k):g} bits, not 3, 4 or 6")


def _columns(module: Module, checkpoint: Checkpoint) -> int:
    """K of packed codes, as their `weight_shape` says."""
    if "weight_shape" not in module.tensors:
        raise Undecided("its 'weight_shape' is missing, which tells the number of bits")
    shape = checkpoint.read(f"{module.name}.weight_shape")
    if shape.shape != (2,):
        raise Undecided(f"its 'weight_shape' holds {shape.size} numbers, not N and K")
    return int(shape[1])


def _gptq(module: Module, checkpoint: Checkpoint) -> Possible:
    words, n = module.shape("qweight")[-2:]
    if "qzeros" not in module.tensors or "scales" not in module.tensors:
        return Possible(("gptq_int4_g128", "gptq_int8_g128"), partial=True)
    bits = 32 * module.shape("qzeros")[-1] // n
    if bits not in (4, 8) or len(module.shape("scales")) != 2:
        raise Undecided(f"its 'qzeros' {list(module.shape('qzeros'))} hold integers of neither 4 nor 8 bits")
    k = words * 32 // bits
    sizes = _groups(k, module.shape("scales")[0])
    act = "g_idx" in module.tensors and _reordered(checkpoint.read(f"{module.name}.g_idx"), sizes[0])
    symmetric, *asymmetric = ([GPTQ(bits, size, version, act).name for size in sizes] for version in (0, 1, 2))
    try:
        zero_version(checkpoint.read(f"{module.name}.qzeros"), bits)
    except ValueError:
        # A weight that the config calls symmetric stays one: the format says what is wrong with its zero points.
        return Possible((*itertools.chain(*asymmetric), *symmetric))
    return Possible((*symmetric, *itertools.chain(*asymmetric)), same=True)


def _reordered(g_idx: np.ndarray, group: int) -> bool:
    return not bool((g_idx == np.arange(g_idx.size) // group).all())


def _groups(k: int, groups: int) -> tuple[int, ...]:
    sizes = _sizes(k, groups)
    if not sizes:
        raise Undecided(f"its {groups} scales a row are no groups of {k} columns")
    return sizes


def _trellis(module: Module, checkpoint: Checkpoint) -> Possible:
    rate = module.shape("trellis")[-1] / 16
    books = [book for book in MARKERS if book in module.tensors]
    if len(books) > 1:
        raise Undecided(f"it is marked with the codebooks {' and '.join(books)}")
    signs = "_su" if "su" in module.tensors and "suh" not in module.tensors else ""
    return Possible((f"exl3_{rate:g}_{books[0] if books else '3inst'}{signs}",))


def _fused_blocks(module: Module, checkpoint: Checkpoint) -> Possible:
    return Possible(("mxfp4_blocks",))


_KINDS: dict[str, Callable[[Module, Checkpoint], Possible]] = {
    "": _bare,
    "weight": _weight,
    "weight_packed": _packed,
    "weight_indices": _indices,
    "qweight": _gptq,
    "trellis": _trellis,
    "_blocks": _fused_blocks,
}
