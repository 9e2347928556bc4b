"""The ops of the forward, each in a folder of its own with its order as a contract, and the choice between kinds.

"reference" is plain JAX and runs everywhere. "cpu" is native code, generated at first use for this machine: Linux or
macOS, on x86-64 with AVX2 and FMA or on aarch64. They give the same bits; the choice is a name, never a timing.
"float32" is for comparisons: no rounding to bfloat16, no promised order. "triton" runs on a CUDA device, in an order of
its own; ops without a Triton kernel run as the reference does.

The native linear reads BF16. Weights of the other formats, experts of every format, and the ops that have no native
kernel run as the reference does under either name, which decodes weights block by block inside the product: right, and
slow.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from dgpp.formats import Weight
from dgpp.kernels.linear.fed import Feed
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.rows import Phase, Rows
from dgpp.kernels.stored import to_bf16


@dataclass(frozen=True)
class Kernels:
    """One implementation of every op; the packages of this folder say what each op means."""

    name: str
    linear: Callable[..., jax.Array]
    linear_leaves: Callable[..., jax.Array]
    grouped_linear: Callable[..., jax.Array]
    grouped_linear_leaves: Callable[..., jax.Array]
    grouped_gated: Callable[..., Any]
    grouped_down: Callable[..., jax.Array]
    route: Callable[..., tuple[jax.Array, jax.Array]]
    attention: Callable[..., tuple[jax.Array, Any, Any]]
    gated_delta: Callable[..., Any]
    index_scores: Callable[..., jax.Array]
    select_blocks: Callable[..., jax.Array]
    sparse_attention: Callable[..., tuple[jax.Array, Any, Any]]
    gather_rows: Callable[..., jax.Array]
    normed: Callable[..., Any]
    added_normed: Callable[..., tuple[jax.Array, Any]]
    gated_normed: Callable[..., Any]
    swiglu_parts: Callable[..., Any]
    opened: Callable[..., Any]
    delta_inputs: Callable[..., Any]
    attention_inputs: Callable[..., Any]
    joined: Callable[..., list[jax.Array]] | None = None  # `products` at once, where the kind has a kernel for it
    rounded_leaves: Callable[..., jax.Array] | None = None  # `stored_leaves` at once, likewise
    delta_joined: Callable[..., Any] | None = None  # `gated_delta_normed` at once, likewise
    likeliest: Callable[..., Any] | None = None  # where the kind has a kernel for it
    stored: Any = jnp.bfloat16  # the type of stored activations and cache planes
    rhythms: int = 1  # of a model's layers in one step of the scan over them (`dgpp.models.periods`)

    def products(self, x: Any, ws: Sequence[Weight], layer: jax.Array, used: jax.Array) -> list[jax.Array]:
        """Of matrices that read the same rows each the parts of its product, float32 [P, R, N], to be added in
        ascending order (`dgpp.kernels.linear.parts`); arguments as in `dgpp.kernels.linear`, but `layer` is the
        layer's number."""
        if self.joined is not None:
            return self.joined(x, ws, layer, used)
        return [self.linear(x, w, w.place(layer), used)[None] for w in ws]

    def stored_leaves(self, x: Any, w: Weight, layer: jax.Array, used: jax.Array, ranges: Ranges) -> jax.Array:
        """`linear_leaves` rounded to the stored type, [len(ranges), R, N]."""
        if self.rounded_leaves is not None:
            return self.rounded_leaves(x, w, layer, used, ranges)
        return to_bf16(self.linear_leaves(x, w, layer, used, ranges))

    def gated_delta_normed(
        self,
        made: Any,
        z: jax.Array,
        state: Any,
        state_layer: jax.Array,
        weight: Weight,
        layer: jax.Array,
        eps: float,
        act: str,
        rows: Rows,
        key_index: jax.Array,
        feeds: Sequence[Feed],
    ) -> tuple[jax.Array, Any, Any]:
        """(o, its gated norm, state): `gated_delta` of the inputs `made`, then `gated_normed` with the gate z."""
        if self.delta_joined is not None:
            given = (made, z, state, state_layer, weight, layer, eps, act, rows, key_index, feeds)
            joined: tuple[jax.Array, Any, Any] = self.delta_joined(*given)
            return joined
        o, state = self.gated_delta(
            made.q, made.k, made.v, made.g, made.beta, state, state_layer, rows.position, rows.slot,
            rows.phase != Phase.VERIFY, rows.last, rows.replay, rows.used, key_index, rows.zero,
        )  # fmt: skip
        return o, self.gated_normed(o, z, weight, layer, eps, act, rows, feeds=feeds), state


def _reference() -> Kernels:
    from dgpp.kernels.attention.inputs import attention_inputs
    from dgpp.kernels.attention.reference import attention
    from dgpp.kernels.experts.reference import grouped_down, grouped_gated, grouped_linear, grouped_linear_leaves
    from dgpp.kernels.gated.reference import opened, swiglu_parts
    from dgpp.kernels.gather.reference import gather_rows
    from dgpp.kernels.linear.reference import linear, linear_leaves
    from dgpp.kernels.norm.reference import added_normed, gated_normed, normed
    from dgpp.kernels.recurrence.inputs import delta_inputs
    from dgpp.kernels.recurrence.reference import gated_delta
    from dgpp.kernels.route.reference import route
    from dgpp.kernels.sparse_attention.reference import index_scores, select_blocks, sparse_attention

    return Kernels(
        "reference",
        linear,
        linear_leaves,
        grouped_linear,
        grouped_linear_leaves,
        grouped_gated,
        grouped_down,
        route,
        attention,
        gated_delta,
        index_scores,
        select_blocks,
        sparse_attention,
        gather_rows,
        normed,
        added_normed,
        gated_normed,
        swiglu_parts,
        opened,
        delta_inputs,
        attention_inputs,
    )


def _cpu() -> Kernels:
    from dgpp.kernels.attention.cpu import attention
    from dgpp.kernels.linear.cpu import linear, linear_leaves

    return replace(_reference(), name="cpu", linear=linear, linear_leaves=linear_leaves, attention=attention)


def _float32() -> Kernels:
    from dgpp.kernels import float32

    return replace(
        _reference(),
        name="float32",
        linear=float32.linear,
        linear_leaves=float32.linear_leaves,
        grouped_linear=float32.grouped_linear,
        grouped_linear_leaves=float32.grouped_linear_leaves,
        grouped_gated=float32.grouped_gated,
        grouped_down=float32.grouped_down,
        attention=float32.attention,
        sparse_attention=float32.sparse_attention,
        stored=jnp.float32,
    )


def _triton() -> Kernels:
    from dgpp.kernels.attention.triton import attention
    from dgpp.kernels.attention.triton_inputs import attention_inputs
    from dgpp.kernels.experts.triton import grouped_down, grouped_gated, grouped_linear, grouped_linear_leaves
    from dgpp.kernels.gated.triton import opened, swiglu_parts
    from dgpp.kernels.gather.triton import gather_rows
    from dgpp.kernels.linear.triton import linear, linear_leaves, products, rounded_leaves
    from dgpp.kernels.norm.triton import added_normed, gated_normed, normed
    from dgpp.kernels.pick.triton import likeliest
    from dgpp.kernels.recurrence.triton import delta_inputs, gated_delta, gated_delta_normed
    from dgpp.kernels.route.triton import route
    from dgpp.kernels.sparse_attention.triton import index_scores, select_blocks, sparse_attention

    return replace(
        _reference(),
        name="triton",
        linear=linear,
        linear_leaves=linear_leaves,
        grouped_linear=grouped_linear,
        grouped_linear_leaves=grouped_linear_leaves,
        grouped_gated=grouped_gated,
        grouped_down=grouped_down,
        route=route,
        attention=attention,
        gated_delta=gated_delta,
        index_scores=index_scores,
        select_blocks=select_blocks,
        sparse_attention=sparse_attention,
        gather_rows=gather_rows,
        normed=normed,
        added_normed=added_normed,
        gated_normed=gated_normed,
        swiglu_parts=swiglu_parts,
        opened=opened,
        delta_inputs=delta_inputs,
        attention_inputs=attention_inputs,
        rounded_leaves=rounded_leaves,
        joined=products,
        delta_joined=gated_delta_normed,
        likeliest=likeliest,
        rhythms=8,  # a step of a scan costs some launches that compute nothing but layers' places
    )


KINDS: dict[str, Callable[[], Kernels]] = {
    "reference": _reference,
    "cpu": _cpu,
    "float32": _float32,
    "triton": _triton,
}


def select(name: str) -> Kernels:
    """The kernels called `name`. Raises ValueError with the known names for any other.

    Nothing is compiled here; the first trace of a "cpu" op raises RuntimeError on a machine without a target.
    """
    if name not in KINDS:
        raise ValueError(f"unknown kernels {name!r}; known are: {', '.join(KINDS)}")
    return KINDS[name]()


def default() -> Kernels:
    """The kernels to use where nothing is chosen. JAX's device decides: on a CUDA device "triton" if Triton is
    installed, on a CPU "cpu" if this machine has a target for it, else "reference"."""
    from dgpp.kernels.native.target import host_target

    if jax.default_backend() == "gpu":
        return select("triton" if importlib.util.find_spec("triton") else "reference")
    return select("reference" if host_target() is None else "cpu")
