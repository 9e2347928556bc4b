"""The text config that the Qwen hybrid families share: gated DeltaNet and gated attention layers, dense or MoE.

config.json nests it under `text_config`. A field that would change the forward in a way that is not built is refused by
name rather than guessed at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dgpp.layers.rope import Rope
from dgpp.models.family import ConfigError

LINEAR, FULL = "linear_attention", "full_attention"
SPELLINGS = {
    LINEAR: LINEAR,
    FULL: FULL,
    "qwen_sparse_attention": FULL,  # Flash-Next's own name of its attention layers
    "indexed_attention": FULL,  # what transformers writes for it
}
"""The kinds of layers by what config.json may call them."""


@dataclass(frozen=True)
class MoEConfig:
    """The fields of a mixture of experts; names as in the file."""

    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    shared_expert_intermediate_size: int


@dataclass(frozen=True)
class HybridConfig:
    """The fields that shape a hybrid forward; names as in the file, except `layers`, `moe` and `mtp_layers`."""

    vocab_size: int
    hidden_size: int
    layers: int
    layer_types: tuple[str, ...]
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int
    output_gate_type: str
    rms_norm_eps: float
    max_position_embeddings: int
    rope: Rope
    intermediate_size: int  # of the dense MLP; 0 with experts
    moe: MoEConfig | None
    mtp_layers: int
    eos_token_id: int

    @property
    def linear_layers(self) -> tuple[int, ...]:
        """The numbers of the gated DeltaNet layers."""
        return tuple(i for i, kind in enumerate(self.layer_types) if kind == LINEAR)

    @property
    def full_layers(self) -> tuple[int, ...]:
        """The numbers of the attention layers."""
        return tuple(i for i, kind in enumerate(self.layer_types) if kind == FULL)

    @property
    def key_width(self) -> int:
        """Channels of a DeltaNet layer's keys, and of its queries."""
        return self.linear_num_key_heads * self.linear_key_head_dim

    @property
    def value_width(self) -> int:
        """Channels of a DeltaNet layer's values."""
        return self.linear_num_value_heads * self.linear_value_head_dim

    def kv_head_of(self, head: int) -> int:
        """The K/V head that query head `head` reads."""
        return head * self.num_key_value_heads // self.num_attention_heads

    def key_head_of(self, head: int) -> int:
        """The query and key head that value head `head` of a DeltaNet layer reads."""
        return head * self.linear_num_key_heads // self.linear_num_value_heads


def text_config(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """`text_config` of a raw config.json, or the raw config itself where it is flat."""
    text = raw.get("text_config", raw)
    if not isinstance(text, Mapping):
        raise ConfigError(f"config.json: text_config must be an object, got {text!r}")
    return text


def positive(text: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A positive integer of the config. Raises ConfigError."""
    value = text.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"config.json: {key} must be a positive integer, got {value!r}")
    return value


def refuse(text: Mapping[str, Any], **supported: Any) -> None:
    """Raises ConfigError for a field that is there with another value than the supported one."""
    for key, value in supported.items():
        if text.get(key, value) != value:
            raise ConfigError(f"config.json: {key} {text[key]!r} is not supported; this family has {value!r}")


def hybrid_fields(raw: Mapping[str, Any], moe: bool, gate: str) -> dict[str, Any]:
    """The fields of `HybridConfig` from a raw config.json. `gate` is the output gate where the file names none.

    Raises ConfigError naming the field that is missing, contradicts another, or asks for what is not built.
    """
    text = text_config(raw)
    refuse(
        text,
        attention_bias=False,
        tie_word_embeddings=False,
        hidden_act="silu",
        mamba_ssm_dtype="float32",
        norm_topk_prob=True,
        mtp_use_dedicated_embeddings=False,
    )
    layers = positive(text, "num_hidden_layers")
    heads, kv_heads = positive(text, "num_attention_heads"), positive(text, "num_key_value_heads")
    key_heads, value_heads = positive(text, "linear_num_key_heads"), positive(text, "linear_num_value_heads")
    for name, many, few in (
        ("num_attention_heads", heads, kv_heads),
        ("linear_num_value_heads", value_heads, key_heads),
    ):
        if many % few:
            raise ConfigError(f"config.json: {name} {many} is not a multiple of the {few} heads that they share")
    dims = {key: positive(text, key) for key in ("head_dim", "linear_key_head_dim", "linear_value_head_dim")}
    for key, dim in dims.items():
        if dim % 16:
            raise ConfigError(f"config.json: {key} {dim} is not a multiple of 16")
    kernel = positive(text, "linear_conv_kernel_dim")
    if not 2 <= kernel <= 8:
        raise ConfigError(f"config.json: linear_conv_kernel_dim must be 2 to 8, got {kernel}")
    gate = text.get("output_gate_type", gate)
    if gate not in ("swish", "silu", "sigmoid"):
        raise ConfigError(f"config.json: output_gate_type {gate!r} is not supported; supported: swish, sigmoid")
    eps = text.get("rms_norm_eps", 1e-6)
    if not isinstance(eps, float | int) or not 0 < eps < 1:
        raise ConfigError(f"config.json: rms_norm_eps must be in (0, 1), got {eps!r}")
    positions = positive(text, "max_position_embeddings")
    return {
        "vocab_size": positive(text, "vocab_size"),
        "hidden_size": positive(text, "hidden_size"),
        "layers": layers,
        "layer_types": _layer_types(text, layers),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        **dims,
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": value_heads,
        "linear_conv_kernel_dim": kernel,
        "output_gate_type": "sigmoid" if gate == "sigmoid" else "swish",
        "rms_norm_eps": float(eps),
        "max_position_embeddings": positions,
        "rope": _rope(raw, text, dims["head_dim"], positions),
        "intermediate_size": 0 if moe else positive(text, "intermediate_size"),
        "moe": _moe(text, moe),
        "mtp_layers": _mtp_layers(text),
        "eos_token_id": _eos(raw, text),
    }


def _layer_types(text: Mapping[str, Any], layers: int) -> tuple[str, ...]:
    interval = text.get("full_attention_interval")
    if interval is not None and (not isinstance(interval, int) or interval < 1):
        raise ConfigError(f"config.json: full_attention_interval must be a positive integer, got {interval!r}")
    regular = tuple(LINEAR if (i + 1) % (interval or 4) else FULL for i in range(layers))
    given = text.get("layer_types")
    if given is None:
        return regular
    unknown = [kind for kind in given if kind not in SPELLINGS]
    if unknown:
        raise ConfigError(f"config.json: layer_types has {unknown[0]!r}; known are {', '.join(SPELLINGS)}")
    kinds = tuple(SPELLINGS[kind] for kind in given)
    if len(kinds) != layers:
        raise ConfigError(f"config.json: layer_types names {len(kinds)} layers, num_hidden_layers {layers}")
    if interval is not None and kinds != regular:
        raise ConfigError(f"config.json: layer_types disagrees with full_attention_interval {interval}")
    if not {LINEAR, FULL} <= set(kinds):
        raise ConfigError(f"config.json: layer_types must have both {LINEAR} and {FULL} layers")
    return kinds


def _moe(text: Mapping[str, Any], moe: bool) -> MoEConfig | None:
    names = [field.name for field in fields(MoEConfig)]
    if not moe:
        if found := [name for name in names if text.get(name)]:
            raise ConfigError(f"config.json: {found[0]} does not belong to a dense model")
        return None
    config = MoEConfig(**{name: positive(text, name) for name in names})
    if config.num_experts_per_tok > config.num_experts:
        raise ConfigError(
            f"config.json: num_experts_per_tok {config.num_experts_per_tok} of {config.num_experts} experts"
        )
    return config


def _mtp_layers(text: Mapping[str, Any]) -> int:
    nested = text.get("mtp")
    count = text.get("mtp_num_hidden_layers", nested.get("num_hidden_layers") if isinstance(nested, Mapping) else 0)
    if count not in (0, 1):
        raise ConfigError(f"config.json: mtp_num_hidden_layers must be 0 or 1, got {count!r}")
    return int(count)


def _eos(raw: Mapping[str, Any], text: Mapping[str, Any]) -> int:
    """The first end-of-sequence id of the text config: the one that n-gram hashing knows."""
    value = text.get("eos_token_id", raw.get("eos_token_id"))
    first = value[0] if isinstance(value, list) and value else value
    if not isinstance(first, int) or isinstance(first, bool) or first < 0:
        raise ConfigError(f"config.json: eos_token_id must be a token id, got {value!r}")
    return first


def _rope(raw: Mapping[str, Any], text: Mapping[str, Any], head_dim: int, positions: int) -> Rope:
    try:
        rope = Rope.from_config(
            {"partial_rotary_factor": raw.get("partial_rotary_factor", 0.25), **text}, head_dim, positions
        )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if rope.kind != "default":
        raise ConfigError(f"config.json: rope_type {rope.kind!r} is not published for this family; YaRN is an option")
    return rope
