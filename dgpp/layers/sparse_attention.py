"""Gated attention restricted to blocks of tokens that an indexer selects.

Equations: `Qwen4ExpTextQSAIndexer` and `Qwen4ExpTextAttention` of transformers 5.24. A block is
`indexer_compress_ratio` tokens; its compressed key is made once, when its last token comes. Rounding points beside
those of `dgpp.layers.gated_attention`: index queries and raw keys after their projection, norm and rotation, the mean
of the raw keys, and the compressed key after norm and rotation are bf16; scores are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from dgpp.formats import Weight
from dgpp.kernels import Kernels
from dgpp.kernels.lanes import as_bits
from dgpp.kernels.linear import Ranges
from dgpp.kernels.norm.reference import rms_norm_1p
from dgpp.kernels.rope.reference import apply_mrope
from dgpp.kernels.rows import Rows
from dgpp.kernels.stacks import values_of
from dgpp.kernels.stored import to_bf16
from dgpp.kernels.window import window
from dgpp.layers.gated_attention import AttentionConfig, gated_output, project
from dgpp.layers.taps import Taps
from dgpp.world import World

Angles = Callable[[jax.Array], tuple[jax.Array, jax.Array]]
"""Cosines and sines, float32 [R, Dr/2] each, of rope positions int32 [R, 3]: `Rope.angles` with its tables bound."""

SITES = ("q", "raw", "key", "scores", "blocks")
"""What the indexer shows of itself, each under "index.<site>", beside the sites of gated attention."""

STATE = ("k", "v", "index", "index_raw", "index_rope")
"""Its state: the planes of gated attention, the plane of compressed keys, stored type [D'] per block, and two rings
(before = block - 1): the raw keys, stored type [D'], and the rope positions, int32 [3]."""


class SparseConfig(AttentionConfig, Protocol):
    """The fields of a config that shape the indexer, named as in config.json."""

    @property
    def indexer_head_dim(self) -> int: ...
    @property
    def indexer_budget(self) -> int: ...
    @property
    def indexer_compress_ratio(self) -> int: ...


def sparse_attention(
    c: SparseConfig,
    w: Mapping[str, Any],
    layer: jax.Array,
    x: jax.Array,
    angles: Angles,
    rows: Rows,
    state: Mapping[str, jax.Array],
    state_layer: jax.Array,
    kv_index: jax.Array,
    out_ranges: Ranges,
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """(the leaves of the output, [4, R, D]; state); arguments as in `dgpp.layers.gated_attention`, but for `angles`.

    `w` also holds "indexer": {index_qk_proj [(heads + 1) * D', D], q heads first; q_layernorm, k_layernorm [D']}. The
    indexer is the same on every rank. A row attends to the `indexer_budget` tokens of its best blocks and to the tokens
    after its last complete block.
    """
    blocks, after = select(c, w["indexer"], layer, x, angles, rows, state, state_layer, kernels, taps)
    p = project(c, w, layer, x, angles(rows.rope), rows, kernels, taps)
    mix, k_plane, v_plane = kernels.sparse_attention(
        p.q, p.k, p.v, state["k"], state["v"], state_layer, rows.page_table, rows.position, rows.slot, kv_index, blocks,
        rows.used, rows.zero, scale=c.head_dim**-0.5, block=c.indexer_compress_ratio,
    )  # fmt: skip
    out = gated_output(mix, p.gate, w["o_proj"], layer, out_ranges, rows, world, kernels, taps)
    return out, {**state, **after, "k": k_plane, "v": v_plane}


def select(
    c: SparseConfig,
    w: Mapping[str, Weight],
    layer: jax.Array,
    x: jax.Array,
    angles: Angles,
    rows: Rows,
    state: Mapping[str, jax.Array],
    state_layer: jax.Array,
    kernels: Kernels,
    taps: Taps,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """(the blocks that each row attends to, as `dgpp.kernels.sparse_attention` has them; the indexer's new state)."""
    dim, block, zero = c.indexer_head_dim, c.indexer_compress_ratio, rows.zero
    proj = w["index_qk_proj"]
    y = to_bf16(kernels.linear(x, proj, proj.place(layer), rows.used))
    q, raw = y[:, :-dim].reshape(y.shape[0], -1, dim), taps("index.raw", y[:, -dim:])

    def turned(y: jax.Array, norm: str, rope: jax.Array) -> jax.Array:
        return apply_mrope(rms_norm_1p(y, values_of(w[norm], layer), c.rms_norm_eps, zero), *angles(rope), zero)

    q = taps("index.q", turned(q, "q_layernorm", rows.rope))

    back = tuple(range(block - 1, 0, -1))
    before, raw_ring = window(raw, state["index_raw"], state_layer, rows, back)
    starts, rope_ring = window(rows.rope, state["index_rope"], state_layer, rows, back[:1])
    members = [*before, raw]
    total = members[0].astype(jnp.float32)
    for member in members[1:]:
        total = total + member.astype(jnp.float32)
    key = turned(to_bf16(total * (1 / block))[:, None], "k_layernorm", [*starts, rows.rope][0])[:, 0]
    index = _write_blocks(state["index"], taps("index.key", key), state_layer, rows, block)

    scores = kernels.index_scores(
        q, index, state_layer, rows.page_table, rows.position, rows.slot, rows.used, zero, block=block
    )
    blocks = kernels.select_blocks(taps("index.scores", scores), c.indexer_budget // block)
    return taps("index.blocks", blocks), {"index": index, "index_raw": raw_ring, "index_rope": rope_ring}


def _write_blocks(index: jax.Array, key: jax.Array, layer: jax.Array, rows: Rows, block: int) -> jax.Array:
    """The plane with the keys of the blocks that the batch's rows complete."""
    each = index.shape[2]
    position = jnp.maximum(rows.position, 0)
    ends = (jnp.arange(key.shape[0]) < rows.used) & (position % block == block - 1)
    page = rows.page_table[jnp.maximum(rows.slot, 0), position // block // each]
    at = (layer, jnp.where(ends, page, index.shape[1]), position // block % each)  # a page that is not there is dropped
    if index.dtype == jnp.bfloat16:
        return lax.bitcast_convert_type(as_bits(index).at[at].set(as_bits(key), mode="drop"), jnp.bfloat16)
    return index.at[at].set(key, mode="drop")
