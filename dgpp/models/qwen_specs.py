"""The tensors of the parts that the Qwen hybrid families share, with where they are cut.

Every function returns {name in the tree: spec}; `prefix` is the name of a layer in the checkpoint with `{layer}` in it,
and `numbers` are the layers that have the part. Norms with a weight of 1 + w are stored around 0.
"""

from __future__ import annotations

from typing import Any

from dgpp.checkpoint.spec import Either, Leaves, SpecTree, TensorSpec, even_ranges
from dgpp.formats import Shape
from dgpp.models.heads import head_leaves, shared_leaves
from dgpp.models.qwen_config import HybridConfig, MoEConfig

Specs = dict[str, TensorSpec]
Bands = Leaves | tuple[Leaves, ...] | None


def norm_spec(source: str, size: int, numbers: tuple[int, ...] = (), axis: str = "embed") -> TensorSpec:
    """A norm's weight w, of which 1 + w is used."""
    return TensorSpec(source, (size,), (axis,), numbers=numbers, centre=0)


def delta_net_specs(c: HybridConfig, prefix: str, numbers: tuple[int, ...]) -> Specs:
    """Gated DeltaNet: value heads are cut in four leaves, and the query and key heads that they read with them."""
    heads, dk, dv = c.linear_num_value_heads, c.linear_key_head_dim, c.linear_value_head_dim
    d, keys, values = c.hidden_size, c.key_width, c.value_width
    channels = 2 * keys + values
    mixed = (
        shared_leaves(c.key_head_of, heads, dk),
        shared_leaves(c.key_head_of, heads, dk, offset=keys),
        head_leaves(heads, dv, offset=2 * keys),
    )
    per_head, rows, columns = head_leaves(heads, 1), head_leaves(heads, dv), head_leaves(heads, dv, axis=1)

    def spec(
        name: str, shape: Shape, axes: tuple[str, ...], tag: str = "bf16", leaves: Bands = None, **fields: Any
    ) -> TensorSpec:
        return TensorSpec(f"{prefix}linear_attn.{name}", shape, axes, tag, leaves, numbers, **fields)

    taps = (channels, 1, c.linear_conv_kernel_dim)

    return {
        "in_proj_qkv": spec("in_proj_qkv", (channels, d), ("channels", "embed"), "bf16", mixed),
        "in_proj_z": spec("in_proj_z", (values, d), ("heads", "embed"), "bf16", rows),
        "in_proj_a": spec("in_proj_a", (heads, d), ("heads", "embed"), "bf16", per_head),
        "in_proj_b": spec("in_proj_b", (heads, d), ("heads", "embed"), "bf16", per_head),
        "conv1d": spec("conv1d", taps, ("channels", "one", "taps"), "bf16", mixed, linear=False),
        "A_log": spec("A_log", (heads,), ("heads",), "bf16_bare", per_head, centre=0),
        "dt_bias": spec("dt_bias", (heads,), ("heads",), "bf16_bare", per_head, centre=-2),
        "norm": spec("norm", (dv,), ("head_dim",)),
        "out_proj": spec("out_proj", (d, values), ("embed", "heads"), "bf16", columns),
    }


def attention_specs(c: HybridConfig, prefix: str, numbers: tuple[int, ...]) -> Specs:
    """Gated attention: a query head's rows are its query and then its gate."""
    heads, d, dh = c.num_attention_heads, c.hidden_size, c.head_dim
    kv_rows = shared_leaves(c.kv_head_of, heads, dh)

    def spec(name: str, shape: Shape, axes: tuple[str, ...], leaves: Leaves) -> TensorSpec:
        return TensorSpec(f"{prefix}self_attn.{name}", shape, axes, leaves=leaves, numbers=numbers)

    kv = c.num_key_value_heads * dh
    return {
        "q_proj": spec("q_proj", (2 * heads * dh, d), ("heads", "embed"), head_leaves(heads, 2 * dh)),
        "k_proj": spec("k_proj", (kv, d), ("kv_heads", "embed"), kv_rows),
        "v_proj": spec("v_proj", (kv, d), ("kv_heads", "embed"), kv_rows),
        "o_proj": spec("o_proj", (d, heads * dh), ("embed", "heads"), head_leaves(heads, dh, axis=1)),
        "q_norm": norm_spec(f"{prefix}self_attn.q_norm", dh, numbers, "head_dim"),
        "k_norm": norm_spec(f"{prefix}self_attn.k_norm", dh, numbers, "head_dim"),
    }


def mlp_specs(d: int, f: int, prefix: str, numbers: tuple[int, ...]) -> Specs:
    """SwiGLU: gate, up and down under `prefix`, cut along F."""
    rows, columns = (Leaves(axis, even_ranges(f)) for axis in (0, 1))
    return {
        "gate_proj": TensorSpec(f"{prefix}gate_proj", (f, d), ("mlp", "embed"), leaves=rows, numbers=numbers),
        "up_proj": TensorSpec(f"{prefix}up_proj", (f, d), ("mlp", "embed"), leaves=rows, numbers=numbers),
        "down_proj": TensorSpec(f"{prefix}down_proj", (d, f), ("embed", "mlp"), leaves=columns, numbers=numbers),
    }


def moe_specs(c: HybridConfig, moe: MoEConfig, prefix: str, numbers: tuple[int, ...]) -> SpecTree:
    """Router, routed experts [E, ...] cut along F, and the shared expert with its gate.

    A release has the experts one by one, or fused: one tensor of gate and up rows, and one of down rows, for all.
    """
    d, e, f = c.hidden_size, moe.num_experts, moe.moe_intermediate_size
    rows, columns = Leaves(1, even_ranges(f)), Leaves(2, even_ranges(f))
    both = (rows, Leaves(1, even_ranges(f, start=f)))
    up, down = ("experts", "mlp", "embed"), ("experts", "embed", "mlp")

    def spec(name: str, shape: Shape, axes: tuple[str, ...], tag: str = "bf16", leaves: Bands = None) -> TensorSpec:
        return TensorSpec(f"{prefix}mlp.{name}", shape, axes, tag, leaves, numbers)

    each: SpecTree = {
        "gate_proj": spec("experts.{expert}.gate_proj", (e, f, d), up, "bf16", rows),
        "up_proj": spec("experts.{expert}.up_proj", (e, f, d), up, "bf16", rows),
        "down_proj": spec("experts.{expert}.down_proj", (e, d, f), down, "bf16", columns),
    }
    fused: SpecTree = {
        "gate_up_proj": spec("experts.gate_up_proj", (e, 2 * f, d), up, "bf16_bare", both),
        "down_proj": spec("experts.down_proj", (e, d, f), down, "bf16_bare", columns),
    }
    shared = mlp_specs(d, moe.shared_expert_intermediate_size, f"{prefix}mlp.shared_expert.", numbers)
    return {
        "gate": spec("gate", (e, d), ("choices", "embed")),
        "experts": Either((each, fused)),
        "shared_expert": {**shared},
        "shared_expert_gate": spec("shared_expert_gate", (1, d), ("one", "embed")),
    }
