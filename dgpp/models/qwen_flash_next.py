"""Qwen3.8-Flash-Next (`qwen4_exp`): four residual branches, DeltaNet and sparse attention, experts, an n-gram table.

The residual stream R holds four copies of the embedding. Each half of a layer mixes its branches to one input (gated
residual), and adds the mixer's or the experts' output back to every branch with a weight of its own. Attention layers
read the blocks that an indexer selects. One layer adds embeddings of hashed n-grams before it starts (PLE). There is no
norm but those of the gated residual. Equations and rounding points: `modeling_qwen4_exp.py` of transformers 5.24; the
multi-token-prediction layer, which transformers lacks: `qwen4_exp_mtp.py` of SGLang.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.checkpoint.slicing import local_ranges
from dgpp.checkpoint.spec import Leaves, SpecTree, TensorSpec
from dgpp.formats.arrays import place_among
from dgpp.formats.bf16 import BFLOAT16
from dgpp.kernels import Kernels
from dgpp.kernels.leaves import folded
from dgpp.kernels.norm.reference import rms_norm_1p
from dgpp.kernels.rows import Rows
from dgpp.kernels.stacks import values_of
from dgpp.kernels.stored import add_bf16, to_bf16
from dgpp.layers.delta_net import SITES as DELTA_SITES
from dgpp.layers.embed import embed
from dgpp.layers.gated_attention import SITES as ATTENTION_SITES
from dgpp.layers.hyper import SITES as HYPER_SITES
from dgpp.layers.hyper import feed_branches, mix_branches, spread_branches
from dgpp.layers.moe import SITES as MOE_SITES
from dgpp.layers.ngram import NgramTable, ngram_ids
from dgpp.layers.ple import SITES as PLE_SITES
from dgpp.layers.ple import ple, table_rows
from dgpp.layers.sparse_attention import SITES as INDEX_SITES
from dgpp.layers.sparse_attention import sparse_attention
from dgpp.layers.taps import Taps
from dgpp.models import qwen35
from dgpp.models.family import ConfigError, Constants, Draft, Family, NgramSource, Supports
from dgpp.models.heads import head_leaves
from dgpp.models.periods import through_layers
from dgpp.models.qwen35 import head_spec
from dgpp.models.qwen_config import FULL, LINEAR, HybridConfig, hybrid_fields, positive, refuse, text_config
from dgpp.models.qwen_flash_next_releases import RELEASES
from dgpp.models.qwen_specs import Specs, attention_specs, delta_net_specs, moe_specs, norm_spec
from dgpp.models.state import PlaneSpec, RingSpec, StateSpecs
from dgpp.world import World

LAYER = "model.language_model.layers.{layer}."
MIXER = "model.language_model.hyper_connection_mixer."
DRAFT_LAYER = "mtp.layers.{layer}."
DRAFT_MIXER = "mtp.hyper_connection_mixer."
BRANCHES = 4
HASH_LEAVES = 4
IDS = "ngram.ids"
"""What a step adds to the constants: the rows of the table that each row of the batch reads."""

Kind = tuple[str, bool]
"""Of a layer: its mixer, and whether a table is read before it."""
DENSE = (
    r"^head$|delta_net\.(in_proj_qkv|in_proj_z|out_proj)$|attention\.[qkvo]_proj$|indexer\.index_qk_proj$"
    r"|input_mix_weight_(down|up)$|shared_expert\.\w+_proj$|ple\.(key|value)_proj$"
)
"""What `dense_weights` is about: no norm, convolution or router, no weights of a way back, not the fc of the draft."""

PLE = "layers.ple."
NGRAMS = NgramSource(
    f"{PLE}ngram_embedding",
    (f"{PLE}layer_multipliers", f"{PLE}ngram_heads_vocab_sizes", f"{PLE}ngram_heads_offsets"),
    lambda c: c.ngram if c.ple_layers else None,
)


@dataclass(frozen=True)
class FlashNextConfig(HybridConfig):
    """The fields of the gated residual, the indexer and the n-gram table; names as in the file."""

    hc_count: int
    hc_lowrank: int
    indexer_n_heads: int
    indexer_head_dim: int
    indexer_budget: int
    indexer_compress_ratio: int
    ple_layers: tuple[int, ...]  # numbers of the layers with a table, from 0
    ple_embed_dim: int
    ple_conv_kernel_size: int
    ngram: NgramTable
    split_ngram_parts: int


def config(raw: Mapping[str, Any]) -> FlashNextConfig:
    """The config of a raw config.json. Raises ConfigError naming the field that cannot be run."""
    text = text_config(raw)
    shared = hybrid_fields(raw, moe=True, gate="sigmoid")
    refuse(text, hc_count=BRANCHES, indexer_kv_heads=1, output_gate_type="sigmoid")
    numbers: dict[str, Any] = {
        key: positive(text, key)
        for key in (
            "hc_lowrank",
            "indexer_n_heads",
            "indexer_head_dim",
            "indexer_budget",
            "indexer_compress_ratio",
            "ple_embed_dim",
            "ple_conv_kernel_size",
            "split_ngram_parts",
        )
    }
    if numbers["indexer_budget"] % numbers["indexer_compress_ratio"]:
        raise ConfigError(
            f"config.json: indexer_budget {numbers['indexer_budget']} is not a multiple of indexer_compress_ratio "
            f"{numbers['indexer_compress_ratio']}"
        )
    if numbers["indexer_head_dim"] % 16:
        raise ConfigError(f"config.json: indexer_head_dim {numbers['indexer_head_dim']} is not a multiple of 16")
    ids = text.get("ple_layer_ids", [])
    if len(ids) > 1 or not all(isinstance(i, int) and 1 <= i <= shared["layers"] for i in ids):
        raise ConfigError(f"config.json: ple_layer_ids must name at most one layer, counted from 1; got {ids!r}")
    heads = positive(text, "heads_per_ngram") * (positive(text, "ngram_size") - 1)
    if heads % HASH_LEAVES or numbers["ple_embed_dim"] % heads:
        raise ConfigError(
            f"config.json: {heads} n-gram heads must be a multiple of {HASH_LEAVES} and divide ple_embed_dim "
            f"{numbers['ple_embed_dim']}"
        )
    seed = text.get("seed", 1234)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise ConfigError(f"config.json: seed must be an integer, got {seed!r}")
    ngram = NgramTable(
        vocab_size=shared["vocab_size"],
        eos=shared["eos_token_id"],
        ngram_size=positive(text, "ngram_size"),
        heads_per_ngram=positive(text, "heads_per_ngram"),
        base=positive(text, "ngram_vocab_size_base"),
        multiple=positive(text, "make_ngram_vocab_size_divisible_by"),
        seed=seed,
    )
    if ngram.rows % numbers["split_ngram_parts"]:
        raise ConfigError(
            f"config.json: {ngram.rows} rows of the n-gram table are not a multiple of split_ngram_parts "
            f"{numbers['split_ngram_parts']}"
        )
    return FlashNextConfig(**shared, hc_count=BRANCHES, ngram=ngram, ple_layers=tuple(i - 1 for i in ids), **numbers)


# --- tensors --------------------------------------------------------------------------------------------------------


def hyper_specs(c: FlashNextConfig, prefix: str, numbers: tuple[int, ...], inject: bool = True) -> Specs:
    """A gated residual: its norm over all branches, the two matrices of the mix, and the weights of the way back."""
    wide, axes = c.hc_count * c.hidden_size, ("branches", "embed")

    def spec(name: str, shape: tuple[int, int]) -> TensorSpec:
        return TensorSpec(f"{prefix}{name}", shape, axes, numbers=numbers)

    specs = {
        "hc_norm": norm_spec(f"{prefix}hc_norm", wide, numbers),
        "input_mix_weight_down": spec("input_mix_weight_down", (c.hc_lowrank, wide)),
        "input_mix_weight_up": spec("input_mix_weight_up", (wide, c.hc_lowrank)),
    }
    return {**specs, "block_inject_weight": spec("block_inject_weight", (c.hc_count, wide))} if inject else specs


def indexer_specs(c: FlashNextConfig, prefix: str, numbers: tuple[int, ...]) -> Specs:
    """The indexer, which every rank holds whole: all must select the same blocks."""
    name, dim = f"{prefix}self_attn.indexer.", c.indexer_head_dim
    shape = ((c.indexer_n_heads + 1) * dim, c.hidden_size)
    return {
        "index_qk_proj": TensorSpec(f"{name}index_qk_proj", shape, ("heads", "embed"), numbers=numbers),
        "q_layernorm": norm_spec(f"{name}q_layernorm", dim, numbers, "head_dim"),
        "k_layernorm": norm_spec(f"{name}k_layernorm", dim, numbers, "head_dim"),
    }


def ple_specs(c: FlashNextConfig) -> Specs:
    """The n-gram table, cut by hash heads, and the layer that reads it. Integer buffers must be what the config says.

    The projections are cut along K, which the hash heads make up one after the other.
    """
    prefix, only, d = f"{LAYER}ple.", c.ple_layers, c.hidden_size
    wide, table, t = c.hc_count * d, f"{LAYER}ple.ple_embedding.", c.ngram
    per_head = c.ple_embed_dim // t.heads
    columns = head_leaves(t.heads, per_head, axis=1)
    bounds = [*(t.offsets[head] for head in range(0, t.heads, t.heads // HASH_LEAVES)), t.rows]
    rows = Leaves(0, tuple(pairwise(bounds)))

    def integers(name: str, values: tuple[int, ...]) -> TensorSpec:
        shape, axes = (len(values),), ("heads",)
        return TensorSpec(f"{table}{name}", shape, axes, "i64_bare", numbers=only, values=values)

    def projection(name: str, n: int) -> TensorSpec:
        shape, axes = (n, c.ple_embed_dim), ("embed", "hashes")
        return TensorSpec(f"{prefix}{name}", shape, axes, leaves=columns, numbers=only)

    return {
        "layer_multipliers": integers("layer_multipliers", t.multipliers),
        "ngram_heads_vocab_sizes": integers("ngram_heads_vocab_sizes", t.sizes),
        "ngram_heads_offsets": integers("ngram_heads_offsets", t.offsets),
        "ngram_embedding": TensorSpec(
            f"{table}ngram_embedding.shard_{{part}}",
            (t.rows, per_head),
            ("ngrams", "embed"),
            leaves=rows,
            numbers=only,
            linear=False,
            parts=c.split_ngram_parts,
            whole=f"{table}ngram_embedding",
        ),
        "key_proj": projection("key_proj", wide),
        "value_proj": projection("value_proj", d),
        "norm_key": norm_spec(f"{prefix}norm_key", wide, only),
        "norm_query": norm_spec(f"{prefix}norm_query", wide, only),
        "norm_conv": norm_spec(f"{prefix}norm_conv", wide, only),
        "conv1d": TensorSpec(
            f"{prefix}conv1d",
            (wide, 1, c.ple_conv_kernel_size),
            ("channels", "one", "taps"),
            numbers=only,
            linear=False,
        ),
    }


def layer_tree(c: FlashNextConfig, prefix: str, linear: tuple[int, ...], full: tuple[int, ...]) -> SpecTree:
    """The layers with these numbers, but for the n-gram table."""
    every = tuple(sorted((*linear, *full)))
    assert c.moe is not None
    tree: SpecTree = {
        "attn_hyper_connection": {**hyper_specs(c, f"{prefix}attn_hyper_connection.", every)},
        "attention": {**attention_specs(c, prefix, full), "indexer": {**indexer_specs(c, prefix, full)}},
        "mlp_hyper_connection": {**hyper_specs(c, f"{prefix}mlp_hyper_connection.", every)},
        "mlp": moe_specs(c, c.moe, prefix, every),
    }
    if linear:
        tree["delta_net"] = {**delta_net_specs(c, prefix, linear)}
    return tree


def abstract(c: FlashNextConfig) -> SpecTree:
    """The tree of the main model's tensors."""
    layers = layer_tree(c, LAYER, c.linear_layers, c.full_layers)
    if c.ple_layers:
        layers["ple"] = {**ple_specs(c)}
    embed_shape = (c.vocab_size, c.hidden_size)
    return {
        "embed": TensorSpec("model.language_model.embed_tokens", embed_shape, ("vocab", "embed"), plain=True),
        "layers": layers,
        "hyper_connection_mixer": {**hyper_specs(c, MIXER, (), inject=False)},
        "head": head_spec(c),
    }


def draft_tree(c: FlashNextConfig) -> SpecTree:
    """The tree of the multi-token-prediction layer: empty for a model without one."""
    if not c.mtp_layers:
        return {}
    d = c.hidden_size
    return {
        "fc_embedding": TensorSpec("mtp.fc_embedding", (d, d), ("embed", "embed_in")),
        "fc_hidden": TensorSpec("mtp.fc_hidden", (d, d), ("embed", "embed_in")),
        "pre_fc_norm_embedding": norm_spec("mtp.pre_fc_norm_embedding", d),
        "pre_fc_norm_hidden": norm_spec("mtp.pre_fc_norm_hidden", c.hc_count * d),
        "layers": layer_tree(c, DRAFT_LAYER, (), (0,)),
        "hyper_connection_mixer": {**hyper_specs(c, DRAFT_MIXER, (), inject=False)},
    }


# --- what stands beside the weights -----------------------------------------------------------------------------------


def constants(c: FlashNextConfig, positions: int, world: int) -> Constants:
    """Those of the hybrid families, and the tables of the n-gram hash."""
    shared = qwen35.constants(c, positions, world)
    if not c.ple_layers:
        return shared
    products = {"ngram.products": c.ngram.products()}
    return Constants({**shared.replicated, **products}, {**shared.ranked, **c.ngram.ranked(world)})


def state(c: FlashNextConfig, world: int) -> StateSpecs:
    """K, V and index planes of the attention layers, the DeltaNet state, and the rings of the table's layer."""
    specs = {**attention_state(c, len(c.full_layers), world), **qwen35.delta_state(c, world)}
    if c.ple_layers:
        wide, back = c.hc_count * c.hidden_size, (c.ple_conv_kernel_size - 1) * c.ngram.ngram_size
        specs["ple.conv"] = RingSpec(len(c.ple_layers), (wide,), BFLOAT16, before=back)
        specs["ngram.tokens"] = RingSpec(len(c.ple_layers), (), np.dtype(np.int32), before=c.ngram.ngram_size - 1)
    return specs


def attention_state(c: FlashNextConfig, layers: int, world: int) -> StateSpecs:
    """The planes of one rank's attention layers, and the rings of their indexers, which every rank has whole."""
    block, dim = c.indexer_compress_ratio, c.indexer_head_dim
    return {
        **qwen35.kv_planes(c, layers, world),
        "index": PlaneSpec(layers, (dim,), BFLOAT16, per=block),
        "index_raw": RingSpec(layers, (dim,), BFLOAT16, before=block - 1),
        "index_rope": RingSpec(layers, (3,), np.dtype(np.int32), before=block - 1),
    }


# --- forward ----------------------------------------------------------------------------------------------------------


def sites(c: FlashNextConfig) -> dict[str, tuple[int, ...]]:
    """The activations a forward can return, with the layers that have them."""
    every = tuple(range(c.layers))
    inside = {
        **{f"ple.{site}": c.ple_layers for site in PLE_SITES},
        **{f"attn_hyper.{site}": every for site in HYPER_SITES},
        **{f"delta.{site}": c.linear_layers for site in DELTA_SITES},
        **{f"index.{site}": c.full_layers for site in INDEX_SITES},
        **{f"attn.{site}": c.full_layers for site in ATTENTION_SITES},
        **{f"mlp_hyper.{site}": every for site in HYPER_SITES},
        **{f"moe.{site}": every for site in MOE_SITES},
        "out": every,
    }
    final = {"final_hyper.norm": (), "final_hyper.mix": ()}
    return {"embed": (), **{f"layers.*.{site}": layers for site, layers in inside.items()}, **final}


def forward(
    c: FlashNextConfig,
    weights: Mapping[str, Any],
    constants: Mapping[str, jax.Array],
    rows: Rows,
    state: dict[str, jax.Array],
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """(what the final mixer makes of the branches of every row, bf16 [R, D]; the state moved on by the rows)."""
    branches, state = branches_after(c, weights, constants, rows, state, world, kernels, taps)
    x, _ = mix_branches(
        weights["hyper_connection_mixer"], jnp.int32(0), branches, c.hc_count, c.rms_norm_eps, rows, kernels, taps,
        "final_hyper",
    )  # fmt: skip
    return x, state


def branches_after(
    c: FlashNextConfig,
    weights: Mapping[str, Any],
    constants: Mapping[str, jax.Array],
    rows: Rows,
    state: dict[str, jax.Array],
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """(the branches after the last layer, bf16 [R, 4 D]: what the prediction layer reads; the state)."""
    branches = enter(c, weights, rows)
    taps("embed", branches[:, : c.hidden_size])
    if c.ple_layers and rows.ngrams is None:
        ids, state = ngram_ids(c.ngram, constants, rows, state, jnp.int32(0))
        constants = {**constants, IDS: ids}

    def body(kind: Any, w: Mapping[str, Any], layer: jax.Array, carry: Any, inner: Taps) -> Any:
        for half in HALVES.values():
            carry = half(c, kind, w, layer, *carry, constants, rows, world, kernels, inner)
        inner("out", carry[0])
        return carry

    # One rhythm a step of the scan on a GPU too: it is a large program already.
    branches, state = through_layers(weights["layers"], kinds(c), body, (branches, state), taps)
    return branches, state


def kinds(c: FlashNextConfig) -> tuple[Kind, ...]:
    """Of every layer, which mixer it has, and whether a table is read before it."""
    return tuple((kind, layer in c.ple_layers) for layer, kind in enumerate(c.layer_types))


def enter(c: FlashNextConfig, weights: Mapping[str, Any], rows: Rows) -> jax.Array:
    """What enters the first layer: the embeddings of the rows' tokens in every branch, bf16 [R, 4 D]."""
    return spread_branches(embed(weights["embed"], rows.token), c.hc_count)


def table_block(
    c: FlashNextConfig,
    kind: Kind,
    w: Mapping[str, Any],
    layer: jax.Array,
    branches: jax.Array,
    state: dict[str, jax.Array],
    constants: Mapping[str, jax.Array],
    rows: Rows,
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """(branches + PLE where a table is read, bf16 [R, 4 D]; state).

    Where the rows bring what a mapped table holds for them, that is used instead of the resident one.
    """
    if not kind[1]:
        return branches, state
    w = w["ple"]
    embedded = table_rows(w, layer, constants[IDS], kernels) if rows.ngrams is None else rows.ngrams
    ranges = local_ranges(ple_specs(c)["key_proj"], world.size)
    place = place_among(c.ple_layers, layer)
    return ple(
        w, layer, branches, embedded, c.hc_count, c.ngram.ngram_size, c.rms_norm_eps, rows, state, place, ranges,
        world, kernels, taps,
    )  # fmt: skip


def mixer_block(
    c: FlashNextConfig,
    kind: Kind,
    w: Mapping[str, Any],
    layer: jax.Array,
    branches: jax.Array,
    state: dict[str, jax.Array],
    constants: Mapping[str, jax.Array],
    rows: Rows,
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """(branches after DeltaNet or sparse attention, bf16 [R, 4 D]; state)."""
    x, s = mix_branches(
        w["attn_hyper_connection"], layer, branches, c.hc_count, c.rms_norm_eps, rows, kernels, taps, "attn_hyper"
    )
    assert s is not None
    if kind[0] == LINEAR:
        place = place_among(c.linear_layers, layer)
        leaves, state = qwen35.delta_mixer(
            c, w["delta_net"], layer, x, constants, rows, state, place, world, kernels, taps
        )
    else:
        place = place_among(c.full_layers, layer)
        leaves, state = sparse_mixer(c, w["attention"], layer, x, constants, rows, state, place, world, kernels, taps)
    return feed_branches(branches, s, folded(leaves)), state


def sparse_mixer(
    c: FlashNextConfig,
    w: Mapping[str, Any],
    layer: jax.Array,
    x: jax.Array,
    constants: Mapping[str, jax.Array],
    rows: Rows,
    state: dict[str, jax.Array],
    place: jax.Array,
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """(the leaves of gated attention of x over selected blocks, [4, R, D]; state). `place` is the layer's among its
    kind."""
    angles = partial(c.rope.angles, constants["cos"], constants["sin"])
    ranges = local_ranges(attention_specs(c, LAYER, c.full_layers)["o_proj"], world.size)
    return sparse_attention(
        c, w, layer, x, angles, rows, state, place, constants["kv_index"], ranges, world, kernels, taps
    )


def experts_block(
    c: FlashNextConfig,
    kind: Kind,
    w: Mapping[str, Any],
    layer: jax.Array,
    branches: jax.Array,
    state: dict[str, jax.Array],
    constants: Mapping[str, jax.Array],
    rows: Rows,
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """(branches after the mixture of experts, bf16 [R, 4 D]; state)."""
    x, s = mix_branches(
        w["mlp_hyper_connection"], layer, branches, c.hc_count, c.rms_norm_eps, rows, kernels, taps, "mlp_hyper"
    )
    assert s is not None
    leaves = qwen35.experts(c, w["mlp"], layer, x, rows, world, kernels, taps)
    return feed_branches(branches, s, folded(leaves)), state


HALVES: Mapping[str, Callable[..., Any]] = {"table": table_block, "mixer": mixer_block, "mlp": experts_block}
"""The parts of a layer, in their order."""


# --- multi-token prediction -------------------------------------------------------------------------------------------


def draft_state(c: FlashNextConfig, world: int) -> StateSpecs:
    """The planes and rings of the prediction layer."""
    return attention_state(c, 1, world)


def draft(
    c: FlashNextConfig,
    weights: Mapping[str, Any],
    hidden: jax.Array,
    token: jax.Array,
    constants: Mapping[str, jax.Array],
    rows: Rows,
    state: dict[str, jax.Array],
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
    """(hidden state from which the head predicts the token after `token`, bf16 [R, D]; the layer's branches, bf16
    [R, 4 D], which are `hidden` for a longer chain; its state).

    `hidden` bf16 [R, 4 D] is what `branches_after` returned for the rows; `token` int32 [R] the token that follows each
    row. `weights` has the main model's "embed" beside the layer's tensors ("mtp"). A row's position in cache and
    rotation is that of `hidden`, so that blocks of tokens lie as in the main model.
    """
    w, layer = weights["mtp"], jnp.int32(0)

    def norm(x: jax.Array, name: str) -> jax.Array:
        return rms_norm_1p(x, values_of(w[name], layer), c.rms_norm_eps, rows.zero)

    def project(x: jax.Array, name: str, used: jax.Array) -> jax.Array:
        return to_bf16(kernels.linear(x, w[name], layer, used))

    a = project(norm(embed(weights["embed"], token), "pre_fc_norm_embedding"), "fc_embedding", rows.used)
    n = norm(hidden, "pre_fc_norm_hidden").reshape(
        -1, c.hidden_size
    )  # one norm over all branches, then one linear each
    each = project(n, "fc_hidden", rows.used * c.hc_count)
    branches = add_bf16(spread_branches(a, c.hc_count), each.reshape(hidden.shape))
    kind, layers = (FULL, False), w["layers"]
    for half in (mixer_block, experts_block):
        branches, state = half(c, kind, layers, layer, branches, state, constants, rows, world, kernels, taps)
    x, _ = mix_branches(
        w["hyper_connection_mixer"], layer, branches, c.hc_count, c.rms_norm_eps, rows, kernels, taps, "final_hyper"
    )
    return x, branches, state


FAMILY = Family(
    name="qwen_flash_next",
    architectures=("Qwen4ExpForConditionalGeneration",),
    config=config,
    abstract=abstract,
    tied=lambda c: {},
    constants=constants,
    state=state,
    sites=sites,
    kinds=kinds,
    enter=enter,
    halves=HALVES,
    forward=forward,
    logits=qwen35.logits,
    releases=RELEASES,
    draft=Draft(draft_tree, draft_state, draft, branches_after),
    supports=Supports(DENSE, qwen35.DRAFT_EXPERTS, NGRAMS, rope_scaling=True),
)
