"""The Llama architecture (SmolLM2 and other LlamaForCausalLM checkpoints).

A decoder of L layers, each RMSNorm -> grouped-query attention with rotary positions -> residual, then RMSNorm ->
SwiGLU -> residual; a final RMSNorm and a head, tied to the embedding or not. Equations: `modeling_llama.py` of
transformers 5.24. Rounding points: every stored activation is bfloat16, rounded once from float32; gate and up stay
float32 until their product; attention scores and sums are float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dgpp.checkpoint.slicing import local_ranges, local_shape
from dgpp.checkpoint.spec import Leaves, SpecTree, TensorSpec, even_ranges
from dgpp.formats import Weight
from dgpp.formats.bf16 import BFLOAT16
from dgpp.kernels import Kernels
from dgpp.kernels.leaves import folded
from dgpp.kernels.rope.reference import apply_rope
from dgpp.kernels.rows import Rows
from dgpp.kernels.stored import to_bf16
from dgpp.layers.embed import embed
from dgpp.layers.mlp import mlp
from dgpp.layers.residual import Residual, normed_stream, settled
from dgpp.layers.rope import Rope
from dgpp.layers.taps import Taps
from dgpp.models.family import ConfigError, Constants, Family
from dgpp.models.heads import head_index, head_leaves, shared_leaves
from dgpp.models.llama_releases import RELEASES
from dgpp.models.periods import through_layers
from dgpp.models.state import PlaneSpec, StateSpecs
from dgpp.world import World

# --- config ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LlamaConfig:
    """The fields of config.json that shape the forward; names as in the file, except `layers`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    rope: Rope

    def kv_head_of(self, head: int) -> int:
        """The K/V head that query head `head` reads."""
        return head * self.num_key_value_heads // self.num_attention_heads


def _positive(raw: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = raw.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"config.json: {key} must be a positive integer, got {value!r}")
    return value


def config(raw: Mapping[str, Any]) -> LlamaConfig:
    """The config of a raw config.json. Raises ConfigError naming the field that cannot be run."""
    for key in ("attention_bias", "mlp_bias"):
        if raw.get(key):
            raise ConfigError(f"config.json: {key}=true is not supported by the llama family")
    if raw.get("hidden_act", "silu") != "silu":
        raise ConfigError(f"config.json: hidden_act {raw['hidden_act']!r} is not supported; the llama family has silu")
    hidden, heads = _positive(raw, "hidden_size"), _positive(raw, "num_attention_heads")
    kv_heads = _positive(raw, "num_key_value_heads", heads)
    head_dim = raw.get("head_dim") or hidden // heads
    if heads % kv_heads:
        raise ConfigError(
            f"config.json: num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}"
        )
    if not isinstance(head_dim, int) or head_dim % 16:
        raise ConfigError(f"config.json: head_dim {head_dim!r} is not a multiple of 16")
    eps = raw.get("rms_norm_eps", 1e-6)
    if not isinstance(eps, float | int) or not 0 < eps < 1:
        raise ConfigError(f"config.json: rms_norm_eps must be in (0, 1), got {eps!r}")
    positions = _positive(raw, "max_position_embeddings")
    return LlamaConfig(
        vocab_size=_positive(raw, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_positive(raw, "intermediate_size"),
        layers=_positive(raw, "num_hidden_layers"),
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=float(eps),
        max_position_embeddings=positions,
        tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
        rope=_rope(raw, head_dim, positions),
    )


def _rope(raw: Mapping[str, Any], head_dim: int, positions: int) -> Rope:
    try:
        return Rope.from_config(raw, head_dim, positions)
    except ValueError as error:
        raise ConfigError(str(error)) from None


# --- tensors --------------------------------------------------------------------------------------------------------


def embed_spec(c: LlamaConfig) -> TensorSpec:
    """The embedding. A tied one is also multiplied by."""
    shape, axes = (c.vocab_size, c.hidden_size), ("vocab", "embed")
    return TensorSpec("model.embed_tokens", shape, axes, plain=True, linear=c.tie_word_embeddings)


def head_spec(c: LlamaConfig) -> TensorSpec:
    """The head: the vocabulary is cut in four leaves by the floor rule (E-2.6)."""
    source = "model.embed_tokens" if c.tie_word_embeddings else "lm_head"
    vocab = Leaves(0, even_ranges(c.vocab_size))
    return TensorSpec(source, (c.vocab_size, c.hidden_size), ("vocab", "embed"), leaves=vocab)


def layer_specs(c: LlamaConfig) -> dict[str, TensorSpec]:
    """The tensors of a layer, stacked over all layers. Query heads and MLP columns are cut in four leaves by the
    floor rule; a leaf needs the K/V heads that its query heads read."""
    d, f, dh = c.hidden_size, c.intermediate_size, c.head_dim
    q_rows, q_columns = (head_leaves(c.num_attention_heads, dh, axis) for axis in (0, 1))
    kv_rows = shared_leaves(c.kv_head_of, c.num_attention_heads, dh)
    mlp_rows, mlp_columns = (Leaves(axis, even_ranges(f)) for axis in (0, 1))

    def spec(name: str, shape: tuple[int, ...], axes: tuple[str, ...], leaves: Leaves | None = None) -> TensorSpec:
        return TensorSpec("model.layers.{layer}." + name, shape, axes, leaves=leaves, numbers=tuple(range(c.layers)))

    q, k = c.num_attention_heads * dh, c.num_key_value_heads * dh
    return {
        "attn_norm": spec("input_layernorm", (d,), ("embed",)),
        "q_proj": spec("self_attn.q_proj", (q, d), ("heads", "embed"), q_rows),
        "k_proj": spec("self_attn.k_proj", (k, d), ("kv_heads", "embed"), kv_rows),
        "v_proj": spec("self_attn.v_proj", (k, d), ("kv_heads", "embed"), kv_rows),
        "o_proj": spec("self_attn.o_proj", (d, q), ("embed", "heads"), q_columns),
        "mlp_norm": spec("post_attention_layernorm", (d,), ("embed",)),
        "gate_proj": spec("mlp.gate_proj", (f, d), ("mlp", "embed"), mlp_rows),
        "up_proj": spec("mlp.up_proj", (f, d), ("mlp", "embed"), mlp_rows),
        "down_proj": spec("mlp.down_proj", (d, f), ("embed", "mlp"), mlp_columns),
    }


def abstract(c: LlamaConfig) -> SpecTree:
    """The tree of the family's tensors. A tied checkpoint has no `head`."""
    tree: SpecTree = {
        "embed": embed_spec(c),
        "layers": dict(layer_specs(c)),
        "final_norm": TensorSpec("model.norm", (c.hidden_size,), ("embed",)),
    }
    if not c.tie_word_embeddings:
        tree["head"] = head_spec(c)
    return tree


def tied(c: LlamaConfig) -> dict[str, tuple[str, TensorSpec]]:
    """{path: (path it reads, spec)}: a tied head reads the embedding's data, cut like a head."""
    return {"head": ("embed", head_spec(c))} if c.tie_word_embeddings else {}


# --- what stands beside the weights -----------------------------------------------------------------------------------


def constants(c: LlamaConfig, positions: int, world: int) -> Constants:
    """The rotary table, float32 [positions, Dh/2] twice, and the K/V head that each local query head reads [W, H]."""
    cos, sin = c.rope.table(positions)
    return Constants({"cos": cos, "sin": sin}, {"kv_index": head_index(c.kv_head_of, c.num_attention_heads, world)})


def state(c: LlamaConfig, world: int) -> StateSpecs:
    """The K and V planes of one rank: bf16 [L, pages, page, K, Dh] each, K/V heads cut as the rank needs them."""
    heads = local_shape(layer_specs(c)["k_proj"], world)[0] // c.head_dim
    plane = PlaneSpec(c.layers, (heads, c.head_dim), BFLOAT16)
    return {"k": plane, "v": plane}


# --- forward ----------------------------------------------------------------------------------------------------------

LAYER_SITES = (
    "attn_norm",
    "attn.q",
    "attn.k",
    "attn.v",
    "attn.mix",
    "attn.out",
    "mlp_norm",
    "mlp.gate",
    "mlp.up",
    "mlp.act",
    "mlp.out",
    "out",
)


def sites(c: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """The activations a forward can return; every layer has those of layers."""
    inside = {f"layers.*.{site}": tuple(range(c.layers)) for site in LAYER_SITES}
    return {"embed": (), **inside, "final_norm": ()}


def forward(
    c: LlamaConfig,
    weights: Mapping[str, Any],
    constants: Mapping[str, jax.Array],
    rows: Rows,
    state: dict[str, jax.Array],
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """(final hidden state of every row, bf16 [R, D]; the state with the rows' K and V written).

    All rows are written to the cache before any attends, so segments of any length and phase mix freely.
    """
    h = taps("embed", enter(c, weights, rows))

    def body(kind: Any, w: Mapping[str, Weight], layer: jax.Array, carry: Any, inner: Taps) -> Any:
        for half in HALVES.values():
            carry = half(c, kind, w, layer, *carry, constants, rows, world, kernels, inner)
        inner("out", lambda: settled(carry[0]))
        return carry

    h, state = through_layers(weights["layers"], kinds(c), body, (h, state), taps, kernels.rhythms)
    _, x = norm(c, weights["final_norm"], jnp.int32(0), h, rows, kernels)
    return taps("final_norm", x), state


def enter(c: LlamaConfig, weights: Mapping[str, Any], rows: Rows) -> jax.Array:
    """What enters the first layer: the embeddings of the rows' tokens, bf16 [R, D]."""
    return embed(weights["embed"], rows.token)


def norm(
    c: LlamaConfig,
    w: Weight,
    layer: jax.Array,
    h: jax.Array | Residual,
    rows: Rows,
    kernels: Kernels,
    readers: Iterable[Weight] = (),
) -> tuple[jax.Array, Any]:
    """(h, RMSNorm of it), bf16 [R, D]; `readers` are the matrices that will read it."""
    return normed_stream(h, w, layer, c.rms_norm_eps, rows, kernels, centred=False, readers=readers)


def attention_block(
    c: LlamaConfig,
    kind: str,
    w: Mapping[str, Weight],
    layer: jax.Array,
    h: jax.Array | Residual,
    state: dict[str, jax.Array],
    constants: Mapping[str, jax.Array],
    rows: Rows,
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[Residual, dict[str, jax.Array]]:
    """(h + attention(norm(h)); state). `w` is stacked over layers; `layer` picks one."""
    position = jnp.maximum(rows.rope[:, 0], 0)
    rope = constants["cos"][position], constants["sin"][position]
    h, x = norm(c, w["attn_norm"], layer, h, rows, kernels, [w[f"{name}_proj"] for name in "qkv"])
    taps("attn_norm", x)

    def heads(name: str) -> jax.Array:  # bf16 [R, heads of this rank, Dh]
        y = to_bf16(kernels.linear(x, w[name], w[name].place(layer), rows.used))
        return y.reshape(y.shape[0], -1, c.head_dim)

    q = taps("attn.q", apply_rope(heads("q_proj"), *rope, rows.zero))
    k = taps("attn.k", apply_rope(heads("k_proj"), *rope, rows.zero))
    v = taps("attn.v", heads("v_proj"))
    mix, k_plane, v_plane = kernels.attention(
        q, k, v, state["k"], state["v"], layer, rows.page_table, rows.position, rows.slot,
        constants["kv_index"],
        scale=c.head_dim**-0.5, zero=rows.zero, used=rows.used,
    )  # fmt: skip
    mix = taps("attn.mix", to_bf16(mix).reshape(h.shape[0], -1))
    o_ranges = local_ranges(layer_specs(c)["o_proj"], world.size)
    leaves = world.leaves(kernels.stored_leaves(mix, w["o_proj"], w["o_proj"].place(layer), rows.used, o_ranges))
    taps("attn.out", lambda: folded(leaves))
    return Residual(h, leaves), {"k": k_plane, "v": v_plane}


def mlp_block(
    c: LlamaConfig,
    kind: str,
    w: Mapping[str, Weight],
    layer: jax.Array,
    h: jax.Array | Residual,
    state: dict[str, jax.Array],
    constants: Mapping[str, jax.Array],
    rows: Rows,
    world: World,
    kernels: Kernels,
    taps: Taps,
) -> tuple[Residual, dict[str, jax.Array]]:
    """(h + down(silu(gate(norm(h))) * up(norm(h))); state). `w` is stacked; `layer` picks one."""
    readers = [w[name] for name in ("gate_proj", "up_proj")]
    h, x = norm(c, w["mlp_norm"], layer, h, rows, kernels, readers)
    taps("mlp_norm", x)
    ranges = local_ranges(layer_specs(c)["down_proj"], world.size)
    return Residual(h, mlp(w, layer, x, rows, ranges, world, kernels, taps)), state


HALVES: Mapping[str, Callable[..., Any]] = {"mixer": attention_block, "mlp": mlp_block}
"""The parts of a layer, in their order."""


def kinds(c: LlamaConfig) -> tuple[str, ...]:
    """The kind of every layer: there is one."""
    return ("attention",) * c.layers


def logits(
    c: LlamaConfig,
    weights: Mapping[str, Any],
    hidden: jax.Array,
    used: jax.Array,
    world: World,
    kernels: Kernels,
) -> jax.Array:
    """The head on `hidden` bf16 [R, D]: float32 [R, V], the same on every rank; rows from `used` on are zero."""
    head = weights.get("head", weights["embed"])
    local = kernels.linear(hidden, head, jnp.int32(0), used)
    return world.gather(local, [stop - start for start, stop in even_ranges(c.vocab_size)])


FAMILY = Family(
    name="llama",
    architectures=("LlamaForCausalLM",),
    config=config,
    abstract=abstract,
    tied=tied,
    constants=constants,
    state=state,
    sites=sites,
    kinds=kinds,
    enter=enter,
    halves=HALVES,
    forward=forward,
    logits=logits,
    releases=RELEASES,
)
