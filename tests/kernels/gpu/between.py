"""What lies between the products, as Triton kernels: the bits of the reference on a CPU, and the operands of `prepare`.

    python -m tests.kernels.gpu.between [normed gated_normed gated_delta_normed swiglu opened ...]

In Triton's interpreter with TRITON_INTERPRET=1, else on a CUDA device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.formats import Weight, format_named
from dgpp.kernels import select
from dgpp.kernels.gpu.launch import INTERPRETED
from dgpp.kernels.linear.fed import Fed, Feed, bare
from dgpp.kernels.recurrence import DeltaState
from dgpp.kernels.recurrence.inputs import DeltaInputs
from dgpp.kernels.rows import Phase, Rows
from tests.kernels.same import assert_same_bits
from tests.kernels.test_gather import FORMATS as TABLES
from tests.kernels.test_gather import table

RNG = np.random.default_rng(5)
TRITON, REFERENCE = select("triton"), select("reference")
SLOTS, DEPTH = 4, 5


def numbers(*shape: int, scale: float = 1.0, dtype: Any = jnp.bfloat16) -> Any:
    """Host values of several sizes."""
    return np.asarray(jnp.asarray(scale * RNG.standard_normal(shape) * 4.0 ** RNG.integers(-3, 3, shape), dtype))


def stack(*shape: int, layers: int = 2) -> Weight:
    """Plain values of two layers."""
    return Weight({"values": numbers(layers, *shape)}, "bf16", shape)


def matrix(format: str, n: int, k: int) -> Weight:
    """A matrix that reads rows."""
    kind = format_named(format)
    one = kind.load(kind.encode(RNG.standard_normal((n, k)).astype(np.float32)), (n, k))
    return Weight({name: np.asarray(one[name]) for name in kind.arrays((n, k)) if name in one}, format, (n, k))


def rows_of(count: int, padding: int) -> Rows:
    """Segments of slots 2, 0 and 1 from various positions, then padding."""
    lengths = [count - 5, 4, 1] if count > 6 else [1] * count  # at most one segment of a slot
    starts, slots = [37, 2, 0, 9, 1, 3], [2, 0, 1, 3]
    position, slot, first, last, row = [], [], [], [], 0
    for i, length in enumerate(lengths):
        position += range(starts[i], starts[i] + length)
        slot += [slots[i]] * length
        first += [row] * length
        last += [row + length - 1] * length
        row += length
    order = [*range(count, count + padding)]
    ints = [
        np.array(x, np.int32) for x in (position + [-1] * padding, slot + [-1] * padding, first + order, last + order)
    ]
    rope = np.stack([ints[0], ints[0] + 3, ints[0] + 5], 1)
    zero = np.int32(0)
    empty = np.zeros(count + padding, np.int32)
    return Rows(empty, ints[0], rope, ints[1], empty, *ints[2:], np.int32(count), empty, empty, zero)


def check(op: str, call: Callable[..., Any], *arguments: Any, rows: Rows, feeds: Any = ()) -> None:
    """Both kinds on the same values, as they come out for rows before `used`."""
    with jax.default_device(jax.devices("cpu")[0]):
        wanted = jax.jit(lambda a, r: jax.tree.map(bare, call(REFERENCE)(*a, r, feeds), is_leaf=_is_fed))(
            arguments, rows
        )
    found = {}

    def run(a: Any, r: Rows) -> Any:
        out = call(TRITON)(*a, r, feeds)
        extra = out.operands if isinstance(out, Fed) else {}
        found["forms"] = list(extra)
        return jax.tree.map(bare, out, is_leaf=_is_fed), list(extra.values())

    out, operands = jax.jit(run)(arguments, rows)
    used = int(rows.used)
    for i, (a, b) in enumerate(zip(jax.tree.leaves(out), jax.tree.leaves(wanted), strict=True)):
        assert a.shape == b.shape, f"{op}: output {i} is {a.shape}, not {b.shape}"
        part = slice(used) if len(a) == len(rows.token) else slice(None)
        assert_same_bits(normal(a)[part], normal(b)[part])
    if feeds:
        from dgpp.kernels.linear.triton_form import prepared

        assert operands, f"{op}: no operand beside the rows"
        for form, pair in zip(found["forms"], operands, strict=True):
            again = jax.jit(lambda x, used, form=form: prepared(x, form, used))(out, jnp.int32(used))
            (values, factor), (wanted_values, wanted_factor) = ([np.asarray(a) for a in two] for two in (pair, again))
            assert_same_bits(values[..., :used, :], wanted_values[..., :used, :])
            assert_same_bits(factor[..., :used], wanted_factor[..., :used])
    print("ok", op, flush=True)


def normal(x: Any) -> np.ndarray:
    """Host values with +-0 for subnormal ones, which XLA flushes on a CPU and a GPU keeps."""
    found = np.asarray(x)
    wide = np.abs(found.astype(np.float32))
    return np.where(wide < np.finfo(np.float32).tiny, np.copysign(found.dtype.type(0), found), found)


def _is_fed(x: Any) -> bool:
    return isinstance(x, Fed)


def normed() -> None:
    rows = rows_of(9, 2)
    for format, k in (("fp8_block128_bf16", 320), ("nvfp4", 576), ("mxfp4", 256)):
        for centred in (False, True):
            readers = (Feed(matrix(format, 16, k)),)
            check(
                f"normed {format} {k} {centred}",
                lambda kind, centred=centred: (
                    lambda x, w, rows, feeds: kind.normed(x, w, jnp.int32(1), 1e-6, rows, centred=centred, feeds=feeds)
                ),
                numbers(11, k),
                stack(k),
                rows=rows,
                feeds=readers,
            )
    readers = (Feed(matrix("nvfp4", 16, 320)),)
    for dtype in (jnp.float32, jnp.bfloat16):
        for i, what in enumerate(("sum", "norm")):
            check(
                f"added_normed {what} {jnp.dtype(dtype).name}",
                lambda kind, i=i: (
                    lambda h, leaves, w, rows, feeds: kind.added_normed(
                        h, leaves, w, jnp.int32(1), 1e-6, rows, centred=True, feeds=feeds
                    )[i]
                ),
                numbers(11, 320),
                jnp.stack([numbers(11, 320, dtype=dtype) for _ in range(4)]),
                stack(320),
                rows=rows,
                feeds=readers[:i],
            )
    check(
        "normed without readers",
        lambda kind: lambda x, w, rows, feeds: kind.normed(x, w, jnp.int32(0), 1e-5, rows, centred=False),
        numbers(11, 96),
        stack(96),
        rows=rows,
    )


def gated_normed() -> None:
    heads, dv, rows = 6, 32, rows_of(7, 1)
    ranges = ((0, 64), (64, 128), (128, 192))
    for act in ("swish", "sigmoid"):
        check(
            f"gated_normed {act}",
            lambda kind, act=act: (
                lambda o, z, w, rows, feeds: kind.gated_normed(o, z, w, jnp.int32(1), 1e-6, act, rows, feeds)
            ),
            numbers(8, heads, dv, dtype=jnp.float32),
            numbers(2, 8, heads * dv, scale=30, dtype=jnp.float32),
            stack(dv),
            rows=rows,
            feeds=(Feed(matrix("fp8_block32_e8m0", 32, heads * dv), ranges),),
        )


def gated_delta_normed() -> None:
    """Segments that commit and segments that do not, whose inputs the norm's kernel keeps; with a form and without."""
    keys, values, dim, slots, width = 2, 4, 32, 4, 5
    rows = rows_of(9, 2)
    verified = np.where(np.asarray(rows.slot) == 0, Phase.VERIFY, Phase.DECODE).astype(np.int32)
    rows = replace(rows, phase=verified, replay=np.array([1, 0, 2, 0], np.int32))
    f32 = partial(numbers, dtype=jnp.float32, scale=0.1)
    made = DeltaInputs(
        f32(11, keys, dim), f32(11, keys, dim), numbers(11, values, dim), -np.abs(f32(11, values)), f32(11, values),
        numbers(11, 8), numbers(11, 8),
    )  # fmt: skip
    rings = (f32(2, slots, width, keys, dim), numbers(2, slots, width, values, dim))
    state = DeltaState(f32(2, slots, values, dim, dim), *rings, -np.abs(f32(2, slots, width, values, 2)))
    feed = Feed(matrix("fp8_block32_e8m0", 32, values * dim), ((0, 64), (64, 128)))
    for feeds in ((), (feed,)):
        arguments = (made, numbers(2, 11, values * dim, dtype=jnp.float32), state, stack(dim), rows)

        def run(kind: Any, made: Any, z: Any, state: Any, w: Any, rows: Any, feeds: Any = feeds) -> Any:
            index = jnp.arange(values, dtype=jnp.int32) // 2
            o, y, state = kind.gated_delta_normed(
                made, z, state, jnp.int32(1), w, jnp.int32(0), 1e-6, "swish", rows, index, feeds
            )
            return o[:9], bare(y)[:9], state

        with jax.default_device(jax.devices("cpu")[0]):
            wanted = jax.jit(partial(run, REFERENCE))(*arguments)
        found = jax.jit(partial(run, TRITON))(*arguments)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            if INTERPRETED:  # which adds over dk in another order
                np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=2**-7, atol=1e-5)
            else:
                assert_same_bits(normal(a), normal(b))
        print("ok gated_delta_normed", len(feeds), flush=True)


def swiglu() -> None:
    rows, feeds = rows_of(7, 1), (Feed(matrix("mxfp8", 32, 448), ((0, 128), (128, 256), (256, 448))),)
    check(
        "swiglu",
        lambda kind: lambda gate, up, rows, feeds: kind.swiglu_parts(gate, up, rows, feeds),
        numbers(2, 8, 448, scale=20, dtype=jnp.float32),
        numbers(2, 8, 448, dtype=jnp.float32),
        rows=rows,
        feeds=feeds,
    )


def opened() -> None:
    check(
        "opened",
        lambda kind: lambda mix, gate, rows, feeds: kind.opened(mix, gate, rows, feeds),
        numbers(8, 4, 32, dtype=jnp.float32),
        numbers(8, 4, 32, scale=30),
        rows=rows_of(7, 1),
        feeds=(Feed(matrix("fp8_channel", 32, 128), ((0, 64), (64, 128))),),
    )


def delta_inputs() -> None:
    keys, values, dim, width = 2, 6, 16, 4
    channels = (2 * keys + values) * dim

    def call(kind: Any) -> Callable[..., Any]:
        return lambda qkv, a, b, w, ring, rows, feeds: kind.delta_inputs(
            qkv, a, b, w, jnp.int32(1), ring, jnp.int32(2), rows, keys=keys, dk=dim
        )

    # A ring that has room for all rows beside what they look back to is written by the kernel that reads it.
    for count, depth in ((3, DEPTH), (12, DEPTH), (3, 9), (12, 18)):
        batch = rows_of(count, 3)
        check(
            f"delta_inputs {count} {depth}",
            call,
            numbers(2, count + 3, channels, dtype=jnp.float32),
            numbers(1, count + 3, values, scale=9, dtype=jnp.float32),
            numbers(1, count + 3, values, scale=9, dtype=jnp.float32),
            {"conv1d": stack(channels, 1, width), "A_log": stack(values), "dt_bias": stack(values)},
            numbers(3, SLOTS, depth, channels),
            rows=batch,
        )


def gather_rows() -> None:
    """Of every format of a table, alone and in a stack, with numbers of rows that are not in it."""
    ids = np.array([[0, 36, 7], [-1, 1, 40]], np.int32)
    for name in TABLES:
        for layers in (0, 2):
            w, _ = table(name, layers, k=96)  # no power of two

            def run(ops: Any, w: Any, ids: Any, layer: int = max(0, layers - 1)) -> Any:
                return ops.gather_rows(w, jnp.int32(layer), ids)

            with jax.default_device(jax.devices("cpu")[0]):
                wanted = jax.jit(partial(run, REFERENCE))(w, ids)
            assert_same_bits(normal(jax.jit(partial(run, TRITON))(w, ids)), normal(wanted))
        print("ok gather_rows", name, flush=True)


def attention_inputs() -> None:
    heads, kv_heads, dim, half = 6, 2, 32, 4
    angle = RNG.uniform(0, 7, (9, half)).astype(np.float32)
    check(
        "attention_inputs",
        lambda kind: (
            lambda q, k, v, w, cos, sin, rows, feeds: kind.attention_inputs(
                q, k, v, w, jnp.int32(1), (cos, sin), 1e-6, rows, dim=dim
            )
        ),
        numbers(2, 9, 2 * heads * dim, dtype=jnp.float32),
        numbers(2, 9, kv_heads * dim, dtype=jnp.float32),
        numbers(2, 9, kv_heads * dim, dtype=jnp.float32),
        {"q_norm": stack(dim), "k_norm": stack(dim)},
        np.cos(angle),
        np.sin(angle),
        rows=rows_of(8, 1),
    )


OPS = {
    f.__name__: f
    for f in (normed, gated_normed, gated_delta_normed, swiglu, opened, delta_inputs, gather_rows, attention_inputs)
}

if __name__ == "__main__":
    for name in sys.argv[1:] or OPS:
        OPS[name]()
