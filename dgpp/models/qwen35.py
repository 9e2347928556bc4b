"""Qwen3.5 and Qwen3.8 hybrids: the dense 27B (`qwen3_5`) and the mixture of experts 122B-A10B (`qwen3_5_moe`).

Three layers of gated DeltaNet and one of gated attention in turn, each RMSNorm -> mixer -> residual, then RMSNorm ->
SwiGLU or experts -> residual; a final RMSNorm and an untied head. The two differ in `mlp_block` alone. Equations and
rounding points: `modeling_qwen3_5.py` and `modeling_qwen3_5_moe.py` of transformers 5.24; the multi-token-prediction
layer, `draft`, is that of its generic `MtpModel`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dgpp.checkpoint.slicing import local_ranges, local_shape
from dgpp.checkpoint.spec import Leaves, SpecTree, TensorSpec, even_ranges
from dgpp.formats import Weight
from dgpp.formats.arrays import place_among
from dgpp.formats.bf16 import BFLOAT16
from dgpp.kernels import Kernels
from dgpp.kernels.rows import Rows
from dgpp.kernels.stored import to_bf16
from dgpp.layers import delta_net as delta
from dgpp.layers import gated_attention as attention
from dgpp.layers.embed import embed
from dgpp.layers.mlp import mlp
from dgpp.layers.moe import SITES as MOE_SITES
from dgpp.layers.moe import moe
from dgpp.layers.moe import readers as moe_readers
from dgpp.layers.residual import Residual, normed_stream, settled
from dgpp.layers.taps import Taps
from dgpp.models.family import Constants, Draft, Family, Supports
from dgpp.models.heads import head_index
from dgpp.models.periods import through_layers
from dgpp.models.qwen35_releases import RELEASES
from dgpp.models.qwen_config import FULL, LINEAR, HybridConfig, hybrid_fields
from dgpp.models.qwen_specs import Specs, attention_specs, delta_net_specs, mlp_specs, moe_specs, norm_spec
from dgpp.models.state import PlaneSpec, RingSpec, SlotSpec, StateSpecs
from dgpp.world import World

LAYER = "model.language_model.layers.{layer}."
DRAFT_LAYER = "mtp.layers.{layer}."
DRAFT_EXPERTS = r"^mtp\.layers\.mlp\.experts\."
"""The prediction layer's routed experts in the tree."""


def config(raw: Mapping[str, Any]) -> HybridConfig:
    """The config of a raw config.json. Raises ConfigError naming the field that cannot be run."""
    moe = "Qwen3_5MoeForConditionalGeneration" in raw.get("architectures", ())
    return HybridConfig(**hybrid_fields(raw, moe=moe, gate="swish"))


# --- tensors --------------------------------------------------------------------------------------------------------


def head_spec(c: HybridConfig) -> TensorSpec:
    """The head: the vocabulary is cut in four leaves by the floor rule (E-2.6)."""
    shape, axes = (c.vocab_size, c.hidden_size), ("vocab", "embed")
    return TensorSpec("lm_head", shape, axes, leaves=Leaves(0, even_ranges(c.vocab_size)))


def norm_specs(c: HybridConfig, prefix: str, numbers: tuple[int, ...]) -> Specs:
    """The two norms of a layer."""
    return {
        "input_norm": norm_spec(f"{prefix}input_layernorm", c.hidden_size, numbers),
        "post_attention_norm": norm_spec(f"{prefix}post_attention_layernorm", c.hidden_size, numbers),
    }


def mlp_or_experts(c: HybridConfig, prefix: str, numbers: tuple[int, ...]) -> SpecTree:
    """The tensors of a layer's second half."""
    if c.moe is None:
        return {**mlp_specs(c.hidden_size, c.intermediate_size, f"{prefix}mlp.", numbers)}
    return moe_specs(c, c.moe, prefix, numbers)


def abstract(c: HybridConfig) -> SpecTree:
    """The tree of the main model's tensors; a stack holds the layers that have the tensor."""
    every = tuple(range(c.layers))
    embed_shape = (c.vocab_size, c.hidden_size)
    return {
        "embed": TensorSpec("model.language_model.embed_tokens", embed_shape, ("vocab", "embed"), plain=True),
        "layers": {
            "norms": {**norm_specs(c, LAYER, every)},
            "delta_net": {**delta_net_specs(c, LAYER, c.linear_layers)},
            "attention": {**attention_specs(c, LAYER, c.full_layers)},
            "mlp": mlp_or_experts(c, LAYER, every),
        },
        "final_norm": norm_spec("model.language_model.norm", c.hidden_size),
        "head": head_spec(c),
    }


def draft_tree(c: HybridConfig) -> SpecTree:
    """The tree of the multi-token-prediction layer: empty for a model without one."""
    if not c.mtp_layers:
        return {}
    d, only = c.hidden_size, (0,)
    return {
        "fc": TensorSpec("mtp.fc", (d, 2 * d), ("embed", "embeds")),
        "pre_fc_norm_embedding": norm_spec("mtp.pre_fc_norm_embedding", d),
        "pre_fc_norm_hidden": norm_spec("mtp.pre_fc_norm_hidden", d),
        "layers": {
            "norms": {**norm_specs(c, DRAFT_LAYER, only)},
            "attention": {**attention_specs(c, DRAFT_LAYER, only)},
            "mlp": mlp_or_experts(c, DRAFT_LAYER, only),
        },
        "norm": norm_spec("mtp.norm", d),
    }


# --- what stands beside the weights -----------------------------------------------------------------------------------


def constants(c: HybridConfig, positions: int, world: int) -> Constants:
    """The rotary table, float32 [positions, n/2] twice, and which local head each local head reads [W, H]."""
    cos, sin = c.rope.table(positions)
    return Constants(
        {"cos": cos, "sin": sin},
        {
            "kv_index": head_index(c.kv_head_of, c.num_attention_heads, world),
            "key_index": head_index(c.key_head_of, c.linear_num_value_heads, world),
        },
    )


def state(c: HybridConfig, world: int) -> StateSpecs:
    """K and V planes of the attention layers and the state of the DeltaNet layers, of one rank."""
    return {**kv_planes(c, len(c.full_layers), world), **delta_state(c, world)}


def kv_planes(c: HybridConfig, layers: int, world: int) -> StateSpecs:
    """The K and V planes of one rank: bf16, K/V heads cut as the rank needs them."""
    heads = local_shape(attention_specs(c, LAYER, c.full_layers)["k_proj"], world)[0] // c.head_dim
    plane = PlaneSpec(layers, (heads, c.head_dim), BFLOAT16)
    return {"k": plane, "v": plane}


def delta_state(c: HybridConfig, world: int) -> StateSpecs:
    """The recurrent state of one rank at the last commit, the inputs of the rows since, and the convolution's rows."""
    specs, layers, f32 = delta_net_specs(c, LAYER, c.linear_layers), len(c.linear_layers), np.dtype(np.float32)
    channels = local_shape(specs["in_proj_qkv"], world)[0]
    values = local_shape(specs["in_proj_a"], world)[0]
    dk, dv = c.linear_key_head_dim, c.linear_value_head_dim
    keys = (channels - values * dv) // (2 * dk)
    return {
        "delta.s": SlotSpec(layers, (values, dk, dv), f32),
        "delta.k": RingSpec(layers, (keys, dk), f32, before=0),
        "delta.v": RingSpec(layers, (values, dv), BFLOAT16, before=0),
        "delta.gates": RingSpec(layers, (values, 2), f32, before=0),
        "delta.conv": RingSpec(layers, (channels,), BFLOAT16, before=c.linear_conv_kernel_dim - 1),
    }


# --- forward ----------------------------------------------------------------------------------------------------------

MLP_SITES = ("mlp.gate", "mlp.up", "mlp.act", "mlp.out")


def sites(c: HybridConfig) -> dict[str, tuple[int, ...]]:
    """The activations a forward can return, with the layers that have them."""
    every = tuple(range(c.layers))
    half = MLP_SITES if c.moe is None else tuple(f"moe.{site}" for site in MOE_SITES)
    inside = {
        "input_norm": every,
        **{f"delta.{site}": c.linear_layers for site in delta.SITES},
        **{f"attn.{site}": c.full_layers for site in attention.SITES},
        "post_attention_norm": every,
        **dict.fromkeys(half, every),
        "out": every,
    }
    return {"embed": (), **{f"layers.*.{site}": layers for site, layers in inside.items()}, "final_norm": ()}


def forward(
    c: HybridConfig,
    weights: Mapping[str, Any],
    constants: Mapping[str, jax.Array],
    rows: Rows,
    state: dict[str, jax.Array],
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """(final hidden state of every row, bf16 [R, D]; the state moved on by the rows)."""
    h = taps("embed", enter(c, weights, rows))

    def body(kind: Any, w: Mapping[str, Any], layer: jax.Array, carry: Any, inner: Taps) -> Any:
        for half in HALVES.values():
            carry = half(c, kind, w, layer, *carry, constants, rows, world, kernels, inner)
        inner("out", lambda: settled(carry[0]))
        return carry

    h, state = through_layers(weights["layers"], kinds(c), body, (h, state), taps, kernels.rhythms)
    _, x = norm(c, weights["final_norm"], jnp.int32(0), h, rows, kernels)
    return taps("final_norm", x), state


def kinds(c: HybridConfig) -> tuple[str, ...]:
    """The kind of every layer."""
    return c.layer_types


def enter(c: HybridConfig, weights: Mapping[str, Any], rows: Rows) -> jax.Array:
    """What enters the first layer: the embeddings of the rows' tokens, bf16 [R, D]."""
    return embed(weights["embed"], rows.token)


def norm(
    c: HybridConfig,
    w: Weight,
    layer: jax.Array,
    h: jax.Array | Residual,
    rows: Rows,
    kernels: Kernels,
    readers: Iterable[Weight] = (),
) -> tuple[jax.Array, Any]:
    """(h, RMSNorm of it with 1 + w), bf16 [R, D]; `readers` are the matrices that will read it."""
    return normed_stream(h, w, layer, c.rms_norm_eps, rows, kernels, centred=True, readers=readers)


def mixer_block(
    c: HybridConfig,
    kind: str,
    w: Mapping[str, Any],
    layer: jax.Array,
    h: jax.Array | Residual,
    state: dict[str, jax.Array],
    constants: Mapping[str, jax.Array],
    rows: Rows,
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[Residual, dict[str, jax.Array]]:
    """(h + DeltaNet or attention of norm(h); state)."""
    part = w["delta_net" if kind == LINEAR else "attention"]
    readers = [part[name] for name in (delta if kind == LINEAR else attention).READERS]
    h, x = norm(c, w["norms"]["input_norm"], layer, h, rows, kernels, readers)
    taps("input_norm", x)
    if kind == LINEAR:
        place = place_among(c.linear_layers, layer)
        leaves, state = delta_mixer(c, part, layer, x, constants, rows, state, place, world, kernels, taps)
    else:
        place = place_among(c.full_layers, layer)
        leaves, state = attention_mixer(c, part, layer, x, constants, rows, state, place, world, kernels, taps)
    return Residual(h, leaves), state


def delta_mixer(
    c: HybridConfig,
    w: Mapping[str, Weight],
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
    """(the leaves of gated DeltaNet of x, [4, R, D]; state). `place` is the layer's among the DeltaNet layers."""
    ranges = local_ranges(delta_net_specs(c, LAYER, c.linear_layers)["out_proj"], world.size)
    key_index = constants["key_index"]
    return delta.delta_net(c, w, layer, x, rows, state, place, key_index, ranges, world, kernels, taps)


def attention_mixer(
    c: HybridConfig,
    w: Mapping[str, Weight],
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
    """(the leaves of gated attention of x, [4, R, D]; state). `place` is the layer's among the attention layers."""
    angles = c.rope.angles(constants["cos"], constants["sin"], rows.rope)
    ranges = local_ranges(attention_specs(c, LAYER, c.full_layers)["o_proj"], world.size)
    return attention.gated_attention(
        c, w, layer, x, angles, rows, state, place, constants["kv_index"], ranges, world, kernels, taps
    )


def mlp_block(
    c: HybridConfig,
    kind: str,
    w: Mapping[str, Any],
    layer: jax.Array,
    h: jax.Array | Residual,
    state: dict[str, jax.Array],
    constants: Mapping[str, jax.Array],
    rows: Rows,
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[Residual, dict[str, jax.Array]]:
    """(h + the dense MLP, or the mixture of experts, of norm(h); state)."""
    part = w["mlp"]
    readers = [part[name] for name in ("gate_proj", "up_proj")] if c.moe is None else moe_readers(part)
    h, x = norm(c, w["norms"]["post_attention_norm"], layer, h, rows, kernels, readers)
    taps("post_attention_norm", x)
    if c.moe is not None:
        return Residual(h, experts(c, w["mlp"], layer, x, rows, world, kernels, taps)), state
    ranges = local_ranges(mlp_specs(c.hidden_size, c.intermediate_size, LAYER, ())["down_proj"], world.size)
    return Residual(h, mlp(w["mlp"], layer, x, rows, ranges, world, kernels, taps)), state


HALVES: Mapping[str, Callable[..., Any]] = {"mixer": mixer_block, "mlp": mlp_block}
"""The parts of a layer, in their order."""


def experts(
    c: HybridConfig,
    w: Mapping[str, Any],
    layer: jax.Array,
    x: jax.Array,
    rows: Rows,
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> jax.Array:
    """The leaves of the mixture of experts of x, [4, R, D]."""
    assert c.moe is not None
    routed, shared = (
        local_ranges(mlp_specs(c.hidden_size, size, LAYER, ())["down_proj"], world.size)
        for size in (c.moe.moe_intermediate_size, c.moe.shared_expert_intermediate_size)
    )
    return moe(w, layer, x, c.moe.num_experts_per_tok, rows, routed, shared, world, kernels, taps)


def logits(
    c: HybridConfig,
    weights: Mapping[str, Any],
    hidden: jax.Array,
    used: jax.Array,
    world: World,
    kernels: Kernels,
) -> jax.Array:
    """The head on `hidden` bf16 [R, D]: float32 [R, V], the same on every rank; rows from `used` on are zero."""
    local = kernels.linear(hidden, weights["head"], jnp.int32(0), used)
    return world.gather(local, [stop - start for start, stop in even_ranges(c.vocab_size)])


# --- multi-token prediction -------------------------------------------------------------------------------------------


def draft_state(c: HybridConfig, world: int) -> StateSpecs:
    """The K and V planes of the prediction layer."""
    return kv_planes(c, 1, world)


def draft(
    c: HybridConfig,
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
    """(hidden state from which the head predicts the token after `token`, bf16 [R, D]; the same, which is `hidden` for
    a longer chain; the layer's state).

    `hidden` bf16 [R, D] is what `forward` returned for the rows; `token` int32 [R] the token that follows each row.
    `weights` has the main model's "embed" beside the layer's tensors ("mtp"). A row's position in cache and rotation is
    that of `hidden`.
    """
    w, layer = weights["mtp"], jnp.int32(0)
    _, e = norm(c, w["pre_fc_norm_embedding"], layer, embed(weights["embed"], token), rows, kernels)
    _, n = norm(c, w["pre_fc_norm_hidden"], layer, hidden, rows, kernels)
    h = to_bf16(kernels.linear(jnp.concatenate([e, n], axis=-1), w["fc"], layer, rows.used))
    layers = w["layers"]
    h, x = norm(c, layers["norms"]["input_norm"], layer, h, rows, kernels)
    mixer = layers["attention"]
    leaves, state = attention_mixer(c, mixer, layer, x, constants, rows, state, layer, world, kernels, taps)
    stream = Residual(h, leaves)
    stream, state = mlp_block(c, FULL, layers, layer, stream, state, constants, rows, world, kernels, taps)
    _, out = norm(c, w["norm"], layer, stream, rows, kernels)
    return out, out, state


FAMILY = Family(
    name="qwen35",
    architectures=("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
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
    logits=logits,
    releases=RELEASES,
    draft=Draft(draft_tree, draft_state, draft, forward),
    supports=Supports(dense_weights="^head$", mtp_expert_format=DRAFT_EXPERTS, rope_scaling=True),
)
