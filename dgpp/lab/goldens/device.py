"""Goldens of the Triton kernels on one architecture: `goldens/sm_90/…`, a manifest for each kernel and format.

Inputs come from seeds and are made on the host. A whole step of the tiny Qwen models is hashed as `step` says. Where a
key has no golden, the reference kernels on a CPU are the judge, except of a step, which float64 judges.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.checkpoint.fixture import gaussian
from dgpp.formats import Weight
from dgpp.formats.bf16 import BFLOAT16
from dgpp.formats.cache import KVRows
from dgpp.kernels import Kernels, select
from dgpp.kernels.linear.fed import Feed, bare
from dgpp.kernels.recurrence import DeltaState
from dgpp.kernels.rows import Rows
from dgpp.lab.goldens.case import Case, Computed, Judgement, Values, digest
from dgpp.lab.goldens.key import backend
from dgpp.lab.goldens.step import STEP_CASES, StepCase

LINEAR = (
    *("bf16", "f16", "bf12", "fp8_block128", "fp8_block128_bf16", "fp8_block128_e8m0", "fp8_block32_e8m0"),
    *("fp8_channel", "fp8_channel_f32", "fp8_tensor", "mxfp8", "nvfp4", "nvfp4_divisor", "mxfp4", "mxfp4_deepseek"),
    *("mxfp4_packed", "mxfp4_blocks", "int4_g64", "int8_g64", "int4_g128_f16", "int8_g128_f16", "int8_planes_g128"),
    *("gptq_int4_g128_asym_v1", "gptq_int4_g128_asym_v2", "gptq_int8_g128_asym_v1", "gptq_int4_g32_asym_v2"),
    *("nf4i8", "mixed346_3", "mixed346_4", "mixed346_6"),
    *(f"exl3_{rate}_mul1" for rate in (1, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8)),
    *("exl3_2_mcg", "exl3_4_mcg", "exl3_5_3inst", "exl3_3_3inst_su", "exl3_8_3inst_su"),
)
EXPERTS = ("bf16", "fp8_block128_bf16", "fp8_channel", "nvfp4", "nvfp4_divisor", "mxfp4_deepseek", "mxfp8", "int4_g64")
TABLES = ("bf16", "fp8_tensor", "mxfp8", "nvfp4", "nvfp4_divisor")
STEPS = ("qwen35-tiny-dense", "qwen35-tiny-moe", "qwen_flash_next-tiny")

ZERO = np.int32(0)
Run = Callable[[Kernels, Any, Any], Any]
"""Kernels, the arguments and a zero that the compiler does not know, to whatever leaves of arrays."""


@dataclass(frozen=True)
class Built:
    """The arguments of a case, the runs that are hashed, and the name of the run that is judged."""

    arguments: Any
    runs: Mapping[str, Run]
    judged: str


@dataclass(frozen=True)
class KernelCase:
    """A kernel, whose result is within `bound` of the reference's."""

    name: str
    build: Callable[[], Built]
    bound: float

    @property
    def folder(self) -> str:
        """The architecture."""
        return backend()

    @property
    def inputs(self) -> dict[str, Any]:
        """Names alone: what is made of them is compared by its digest."""
        return {"case": self.name, "seed": 0}

    def compute(self, kernels: str | None) -> Computed:
        """Digests of every output of every run; of the inputs too, which every machine makes alike."""
        with jax.default_device(jax.devices("cpu")[0]):
            built = self.build()
        arguments = jax.tree.map(np.asarray, built.arguments)
        ops, judged = select(kernels or "triton"), []
        pinned: Values = {}
        for name, run in built.runs.items():
            leaves = [np.asarray(x) for x in jax.tree.leaves(jax.jit(partial(run, ops))(arguments, ZERO))]
            pinned |= {f"{name}, output {i}": digest(x) for i, x in enumerate(leaves)}
            if name == built.judged:
                judged = leaves
        inputs = b"".join(np.ascontiguousarray(x).tobytes() for x in jax.tree.leaves(arguments))

        def judge() -> Judgement:
            with jax.default_device(jax.devices("cpu")[0]):
                wanted = jax.jit(partial(built.runs[built.judged], select("reference")))(arguments, ZERO)
            errors = [distance(a, np.asarray(b)) for a, b in zip(judged, jax.tree.leaves(wanted), strict=True)]
            return Judgement(float(np.max(errors)), self.bound)

        return Computed(judge, {"inputs": digest(inputs)}, pinned)


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    """The relative Euclidean distance; equal infinities and NaN have none."""
    a, b = (np.asarray(x).astype(np.float64) for x in (found, wanted))
    if a.shape != b.shape:
        return float("inf")
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    size = np.linalg.norm(np.where(np.isfinite(b), b, 0.0))
    return float(np.linalg.norm(np.where(same, 0.0, a - np.where(same, 0.0, b))) / size)


@dataclass(frozen=True)
class DeviceStep:
    """A whole step, in the folder of the architecture."""

    step: StepCase

    @property
    def name(self) -> str:
        """That of the step."""
        return self.step.name

    @property
    def folder(self) -> str:
        """The architecture."""
        return backend()

    @property
    def inputs(self) -> dict[str, Any]:
        """Those of the step."""
        return self.step.inputs

    def compute(self, kernels: str | None) -> Computed:
        """Digests by activation."""
        return self.step.compute(kernels or "triton")


def _numbers(name: str, *shape: int, dtype: Any = BFLOAT16, scale: float = 1.0) -> np.ndarray:
    values = gaussian(shape, 0, name).astype(np.float32) * np.float32(scale)
    return values.astype(dtype)


def _random_weights() -> Any:
    """Random codes of any format: a module of a source checkout's benchmarks."""
    return importlib.import_module("bench.random_weights")


def _weight(format: str, layers: int, n: int, k: int) -> Weight:
    weight: Weight = _random_weights().random_weight(format, layers, n, k)
    return weight


def _stack(name: str, *shape: int) -> Weight:
    return Weight({"values": _numbers(name, 2, *shape)}, "bf16", shape)


def _i32(values: Any) -> np.ndarray:
    return np.asarray(values, np.int32)


# --- products ---------------------------------------------------------------------------------------------------------


def _linear(format: str) -> Built:
    n, k = (256 if format.startswith("exl3") else 200), 1024
    ranges = tuple((at, at + k // 4) for at in range(0, k, k // 4))

    def whole(count: int, ops: Kernels, given: Any, zero: Any) -> Any:
        return ops.linear(given[0][:count], given[1], zero + 1, zero + count)

    def leaves(ops: Kernels, given: Any, zero: Any) -> Any:
        return ops.linear_leaves(given[0][:16], given[1], zero + 1, zero + 16, ranges)

    runs: dict[str, Run] = {f"rows {count}": partial(whole, count) for count in (1, 16, 64)}
    return Built((_numbers("x", 64, k), _weight(format, 2, n, k)), runs | {"leaves": leaves}, "leaves")


def _experts(format: str) -> Built:
    held, d, inner, chosen, rows = 8, 512, 256, 3, 300
    random_experts = _random_weights().random_experts
    gate, up = (random_experts(format, 2, held, inner, d, seed) for seed in (0, 1))
    down = random_experts(format, 2, held, d, inner, 2)
    order = np.argsort(gaussian((rows, held), 0, "experts"), axis=1, kind="stable")[:, :chosen]
    weights = np.abs(_numbers("weights", rows, chosen))
    act = _numbers("act", rows, chosen, inner)
    leaves = tuple((at, at + inner // 4) for at in range(0, inner, inner // 4))

    def both(count: int, ops: Kernels, given: Any, zero: Any) -> Any:
        x, act, experts, weights, gate, up, down = given
        x, act, experts, weights = (a[:count] for a in (x, act, experts, weights))
        one, used = zero + 1, zero + count
        gated = ops.grouped_gated(x, experts, (gate, up), (one, one), used, zero)
        return bare(gated), ops.grouped_down(act, experts, weights, down, one, used, leaves, zero)

    given = (_numbers("x", rows, d), act, _i32(np.sort(order, axis=1)), weights, gate, up, down)
    return Built(given, {f"rows {count}": partial(both, count) for count in (1, 16, 64, rows)}, "rows 16")


def _route() -> Built:
    def run(held: int, chosen: int, ops: Kernels, given: Any, zero: Any) -> Any:
        return ops.route(given[..., :held], chosen, zero)

    runs = {f"{chosen} of {held}": partial(run, held, chosen) for held, chosen in ((256, 8), (512, 10), (8, 2))}
    return Built(_numbers("logits", 3, 64, 512, dtype=np.float32, scale=4), runs, "10 of 512")


# --- attention and states ---------------------------------------------------------------------------------------------

PAGE, PAGES = 64, 12


def _attention(heads: int, kv_heads: int, dim: int, window: int, sinks: bool, fp8: bool) -> Built:
    caches: list[Any] = [_numbers(f"cache {n}", 2, 2 * PAGES, PAGE, kv_heads, dim) for n in "kv"]
    if fp8:
        caches = [KVRows().encode(jnp.asarray(plane)) for plane in caches]
    table = np.argsort(gaussian((2 * PAGES,), 0, "table"), kind="stable").reshape(2, PAGES)
    position, slot = [700, *range(600, 670)], [0] + [1] * 70
    kv_index = _i32(np.arange(heads) * kv_heads // heads)
    bias = _numbers("sinks", heads, dtype=np.float32) if sinks else None

    def run(count: int, ops: Kernels, given: Any, zero: Any) -> Any:
        (q, k, v, position, slot), caches, table, bias = given
        rows = [a[:count] for a in (q, k, v)]
        more = {"window": window, "sinks": bias} if window or sinks else {}
        fixed = (zero + 1, table, position[:count], slot[:count], kv_index, zero + count, zero)
        return ops.attention(*rows, *caches, *fixed, scale=dim**-0.5, **more)

    rows = (
        _numbers("q", 71, heads, dim),
        *(_numbers(n, 71, kv_heads, dim) for n in "kv"),
        _i32(position),
        _i32(slot),
    )
    return Built((rows, caches, _i32(table), bias), {"few": partial(run, 5), "many": partial(run, 71)}, "few")


def _sparse() -> Built:
    heads, kv_heads, dim, block, budget = 24, 2, 256, 4, 96
    caches = [_numbers(f"cache {n}", 2, 2 * PAGES, PAGE, kv_heads, dim) for n in "kv"]
    index = _numbers("index", 2, 2 * PAGES, PAGE // block, 128)
    table = _i32(np.argsort(gaussian((2 * PAGES,), 0, "table"), kind="stable").reshape(2, PAGES))
    position, slot = _i32([700, *range(600, 670)]), _i32([0] + [1] * 70)
    kv_index = _i32(np.arange(heads) * kv_heads // heads)
    rows = (_numbers("q", 71, heads, dim), *(_numbers(n, 71, kv_heads, dim) for n in "kv"))

    def run(count: int, ops: Kernels, given: Any, zero: Any) -> Any:
        rows, index_q, caches, index, table, position, slot = given
        at, used = (table, position[:count], slot[:count]), zero + count
        scores = ops.index_scores(index_q[:count], index, zero + 1, *at, used, zero, block=block)
        blocks = ops.select_blocks(scores, budget)
        # Blocks of a first selection: the reference's scores may differ in their last bits.
        fixed = jnp.broadcast_to(jnp.arange(0, 140, 2, dtype=jnp.int32)[:budget], (count, 70))
        more = (*caches, zero + 1, *at, kv_index, fixed, used, zero)
        out = ops.sparse_attention(*(a[:count] for a in rows), *more, scale=dim**-0.5, block=block)
        return scores, out, blocks

    given = (rows, _numbers("index q", 71, 4, 128), caches, index, table, position, slot)

    def some(ops: Kernels, given: Any, zero: Any) -> Any:
        return run(5, ops, given, zero)[:2]

    return Built(given, {"few": partial(run, 5), "many": partial(run, 71), "few, without choices": some},
                 "few, without choices")  # fmt: skip


def _select() -> Built:
    scores = np.round(_numbers("scores", 6, 2500, dtype=np.float32, scale=8))  # ties

    def run(ops: Kernels, given: Any, zero: Any) -> Any:
        return ops.select_blocks(given, 512)

    return Built(scores, {"512 of 2500": run}, "512 of 2500")


def _delta(per_key: bool) -> Built:
    keys, values, slots, width, dim, rows = 2, 4, 4, 3, 128, 8
    decays = dim if per_key else 1
    f32 = partial(_numbers, dtype=np.float32)
    gates = -np.abs(f32("gates", 2, slots, width, values, decays + 1, scale=0.3))
    rings = f32("k", 2, slots, width, keys, dim, scale=0.1), _numbers("v", 2, slots, width, values, dim)
    state = DeltaState(f32("s", 2, slots, values, dim, dim), *rings, gates)
    g = -np.abs(f32("g", rows, values, decays, scale=0.3))
    inputs = (
        f32("rows q", rows, keys, dim, scale=0.1),
        f32("rows k", rows, keys, dim, scale=0.1),
        _numbers("rows v", rows, values, dim),
        g if per_key else g[..., 0],
        np.abs(f32("beta", rows, values, scale=0.5)),
    )
    layout = (
        _i32([5, 6, 7, 9, 0, 1, 2, 3]),
        _i32([2, 2, 2, 0, 3, 3, 3, 3]),
        np.array([1, 0, 0, 0, 1, 1, 1, 1], bool),
        _i32([2, 2, 2, 3, 7, 7, 7, 7]),
        _i32([2, 0, 1, 0]),
    )

    def run(ops: Kernels, given: Any, zero: Any) -> Any:
        inputs, state, layout = given
        return ops.gated_delta(*inputs, state, zero + 1, *layout, zero + rows, _i32([0, 0, 1, 1]), zero)

    return Built((inputs, state, layout), {"three segments": run}, "three segments")


# --- between the products ---------------------------------------------------------------------------------------------


def _rows() -> Rows:
    """Seven rows of slots 2, 0 and 1."""
    position, slot = _i32([37, 38, 2, 3, 4, 5, 0]), _i32([2, 2, 0, 0, 0, 0, 1])
    first, last, none = _i32([0, 0, 2, 2, 2, 2, 6]), _i32([1, 1, 5, 5, 5, 5, 6]), _i32([0] * 7)
    rope = np.stack([position, position + 3, position + 5], 1)
    return Rows(none, position, rope, slot, none, first, last, _i32(7), none, none, _i32(0))


def _read(ops: Kernels, x: Any, w: Weight, rows: Rows) -> Any:
    """The rows, and the product of a matrix that reads them."""
    return bare(x), ops.linear(x, w, rows.zero, rows.used)


def _normed() -> Built:
    def run(ops: Kernels, given: Any, zero: Any) -> Any:
        x, norm, w, rows = given
        feeds = (Feed(w),)
        return _read(ops, ops.normed(x, norm, zero + 1, 1e-6, rows, centred=True, feeds=feeds), w, rows)

    given = (_numbers("x", 7, 1024), _stack("norm", 1024), _weight("nvfp4", 1, 64, 1024), _rows())
    return Built(given, {"rows 7": run}, "rows 7")


def _added_normed() -> Built:
    def run(ops: Kernels, given: Any, zero: Any) -> Any:
        h, leaves, norm, w, rows = given
        feeds = (Feed(w),)
        h, x = ops.added_normed(h, leaves, norm, zero + 1, 1e-6, rows, centred=True, feeds=feeds)
        return h, _read(ops, x, w, rows)

    leaves = _numbers("leaves", 4, 7, 1024, dtype=np.float32)
    given = (_numbers("h", 7, 1024), leaves, _stack("norm", 1024), _weight("nvfp4", 1, 64, 1024), _rows())
    return Built(given, {"rows 7": run}, "rows 7")


def _gated_normed() -> Built:
    def run(act: str, ops: Kernels, given: Any, zero: Any) -> Any:
        o, z, norm, w, rows = given
        x = ops.gated_normed(o, z, norm, zero + 1, 1e-6, act, rows, feeds=(Feed(w),))
        return _read(ops, x, w, rows)

    o, z = _numbers("o", 7, 6, 128, dtype=np.float32), _numbers("z", 2, 7, 768, dtype=np.float32)
    given = (o, z, _stack("norm", 128), _weight("fp8_block128_bf16", 1, 64, 768), _rows())
    return Built(given, {act: partial(run, act) for act in ("swish", "sigmoid")}, "swish")


def _swiglu_parts() -> Built:
    def run(ops: Kernels, given: Any, zero: Any) -> Any:
        gate, up, w, rows = given
        return _read(ops, ops.swiglu_parts(gate, up, rows, feeds=(Feed(w),)), w, rows)

    parts = [_numbers(name, 2, 7, 448, dtype=np.float32, scale=3) for name in ("gate", "up")]
    return Built((*parts, _weight("mxfp8", 1, 64, 448), _rows()), {"rows 7": run}, "rows 7")


def _opened() -> Built:
    def run(ops: Kernels, given: Any, zero: Any) -> Any:
        mix, gate, w, rows = given
        return _read(ops, ops.opened(mix, gate, rows, feeds=(Feed(w),)), w, rows)

    given = (_numbers("mix", 7, 4, 64, dtype=np.float32), _numbers("gate", 7, 4, 64, scale=4))
    return Built((*given, _weight("fp8_channel", 1, 64, 256), _rows()), {"rows 7": run}, "rows 7")


def _delta_inputs() -> Built:
    keys, values, dim, width = 2, 6, 128, 4
    channels = (2 * keys + values) * dim
    w = {
        "conv1d": _stack("conv", channels, 1, width),
        "A_log": _stack("A_log", values),
        "dt_bias": _stack("dt_bias", values),
    }

    def run(ops: Kernels, given: Any, zero: Any) -> Any:
        qkv, a, b, w, ring, rows = given
        return ops.delta_inputs(qkv, a, b, w, zero + 1, ring, zero + 2, rows, keys=keys, dk=dim)

    parts = (
        _numbers("qkv", 2, 7, channels, dtype=np.float32),
        *(_numbers(n, 1, 7, values, dtype=np.float32, scale=3) for n in "ab"),
    )
    return Built((*parts, w, _numbers("ring", 3, 4, 5, channels), _rows()), {"rows 7": run}, "rows 7")


def _attention_inputs() -> Built:
    heads, kv_heads, dim, half = 6, 2, 128, 16

    def run(ops: Kernels, given: Any, zero: Any) -> Any:
        q, k, v, w, turn, rows = given
        return ops.attention_inputs(q, k, v, w, zero + 1, turn, 1e-6, rows, dim=dim)

    parts = [_numbers("q", 2, 7, 2 * heads * dim, dtype=np.float32)]
    parts += [_numbers(n, 2, 7, kv_heads * dim, dtype=np.float32) for n in "kv"]
    turn = tuple(_numbers(n, 7, half, dtype=np.float32) for n in ("cos", "sin"))
    w = {"q_norm": _stack("q_norm", dim), "k_norm": _stack("k_norm", dim)}
    return Built((*parts, w, turn, _rows()), {"rows 7": run}, "rows 7")


def _gather() -> Built:
    def run(format: str, ops: Kernels, given: Any, zero: Any) -> Any:
        tables, ids = given
        return ops.gather_rows(tables[format], zero + 1, ids)

    tables = {format: _weight(format, 2, 50, 320) for format in TABLES}
    ids = _i32([[49, 0, 7, 7, 31], [-1, 50, 2**31 - 1, 12, 1]])
    return Built((tables, ids), {format: partial(run, format) for format in TABLES}, "nvfp4_divisor")


SAME = 2.0**-20
"""Of kernels that have the reference's bits, but for what XLA does with subnormal numbers."""
SUMMED = 2.0**-12
"""Of sums of exact products in another order."""
ROUNDED = 2.0**-7
"""Of results that are rounded to bfloat16, or of weights that are."""

_ALL: tuple[Case, ...] = (
    *(DeviceStep(next(case for case in STEP_CASES if case.name == name)) for name in STEPS),
    *(KernelCase(f"experts-{format}", partial(_experts, format), ROUNDED) for format in EXPERTS),
    KernelCase("attention", partial(_attention, 24, 4, 256, 0, False, False), ROUNDED),
    KernelCase("attention-window-sinks", partial(_attention, 16, 2, 128, 128, True, False), ROUNDED),
    KernelCase("attention-fp8", partial(_attention, 24, 4, 256, 0, False, True), ROUNDED),
    KernelCase("sparse_attention", _sparse, ROUNDED),
    KernelCase("select_blocks", _select, 0.0),
    KernelCase("gated_delta", partial(_delta, False), SAME),
    KernelCase("gated_delta-per_key", partial(_delta, True), SAME),
    KernelCase("route", _route, SAME),
    KernelCase("normed", _normed, SUMMED),
    KernelCase("added_normed", _added_normed, SUMMED),
    KernelCase("gated_normed", _gated_normed, SUMMED),
    KernelCase("swiglu_parts", _swiglu_parts, SUMMED),
    KernelCase("opened", _opened, SUMMED),
    KernelCase("delta_inputs", _delta_inputs, SAME),
    KernelCase("attention_inputs", _attention_inputs, SAME),
    KernelCase("gather_rows", _gather, SAME),
    *(KernelCase(f"linear-{format}", partial(_linear, format), SUMMED) for format in LINEAR),
)
DEVICE_CASES = {case.name: case for case in _ALL}
