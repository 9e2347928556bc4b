"""The argument checks that every implementation of gated_delta makes while tracing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from dgpp.kernels.recurrence import DeltaState


def check_gated_delta(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    g: jax.Array,
    beta: jax.Array,
    state: DeltaState,
    layer: jax.Array,
    position: jax.Array,
    slot: jax.Array,
    commits: jax.Array,
    last: jax.Array,
    replay: jax.Array,
    used: jax.Array,
    key_index: jax.Array,
    zero: jax.Array,
) -> None:
    """Raises ValueError naming the first argument whose dtype or shape is wrong."""
    if q.ndim != 3:
        raise ValueError(f"gated_delta: q must be [R, K, dk], not shape {q.shape}")
    if jnp.ndim(state.s) != 5:
        raise ValueError(f"gated_delta: state.s must be [L, S, V, dk, dv], not shape {jnp.shape(state.s)}")
    if jnp.ndim(state.k) != 5:
        raise ValueError(f"gated_delta: state.k must be [L, S, W, K, dk], not shape {jnp.shape(state.k)}")
    rows, keys, dk = q.shape
    layers, slots, values, _, dv = state.s.shape
    width = state.k.shape[2]
    f32, i32 = jnp.float32, jnp.int32
    decays = (dk,) if g.ndim == 3 else ()
    expected: dict[str, tuple[Any, Any, tuple[int, ...]]] = {
        "q": (q, f32, (rows, keys, dk)),
        "k": (k, f32, (rows, keys, dk)),
        "v": (v, state.v.dtype, (rows, values, dv)),
        "g": (g, f32, (rows, values, *decays)),
        "beta": (beta, f32, (rows, values)),
        "state.s": (state.s, f32, (layers, slots, values, dk, dv)),
        "state.k": (state.k, f32, (layers, slots, width, keys, dk)),
        "state.v": (state.v, state.v.dtype, (layers, slots, width, values, dv)),
        "state.gates": (state.gates, f32, (layers, slots, width, values, (dk if decays else 1) + 1)),
        "layer": (layer, i32, ()),
        "position": (position, i32, (rows,)),
        "slot": (slot, i32, (rows,)),
        "commits": (commits, jnp.bool_, (rows,)),
        "last": (last, i32, (rows,)),
        "replay": (replay, i32, (slots,)),
        "used": (used, i32, ()),
        "key_index": (key_index, i32, (values,)),
        "zero": (zero, i32, ()),
    }
    for name, (value, dtype, shape) in expected.items():
        if jnp.asarray(value).dtype != dtype or jnp.shape(value) != shape:
            found = f"{jnp.asarray(value).dtype} of shape {jnp.shape(value)}"
            raise ValueError(f"gated_delta: {name} must be {jnp.dtype(dtype)} of shape {shape}, not {found}")
