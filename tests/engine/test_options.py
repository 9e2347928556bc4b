"""The engine's options about a model: their values, and what they make of a config and a tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dgpp.checkpoint.fixture import stored_tree, with_tokenizer
from dgpp.checkpoint.spec import Leaves, SpecTree, TensorSpec, even_ranges, flatten
from dgpp.engine.levers import held_tree, merged, ngram_source, parted, scaled_config
from dgpp.engine.options import ModelOptions, OptionsError
from dgpp.models import FAMILIES

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}


def release(family: str, name: str, draft: bool = False) -> tuple[Any, Any, SpecTree]:
    """(family, config, tree in the formats of the release)."""
    found = FAMILIES[family]
    layout = found.releases[name]
    config = found.config(with_tokenizer(layout.config))
    return found, config, stored_tree(found.tree(config, draft), layout)


def held(family: str, name: str, draft: bool = False, world: int = 1, **options: Any) -> dict[str, str]:
    """The form in memory of everything that an option changes, by path."""
    found, _, tree = release(family, name, draft)
    out, _ = held_tree(found, tree, ModelOptions(**options), world)
    assert [path for path, _ in flatten(out)] == [path for path, _ in flatten(tree)]
    return {path: spec.resident for path, spec in flatten(out) if spec.resident}


@pytest.mark.parametrize("key", ["dense_weights", "bf16_weights", "mtp_expert_format", "ngram_table"])
def test_an_unknown_value_is_refused_with_its_key_and_what_is_supported(key: str) -> None:
    with pytest.raises(
        OptionsError, match=rf"engine\.{key} 'fp4' is not supported; supported: (checkpoint|resident), "
    ):
        ModelOptions(**{key: "fp4"})


def test_what_is_set_is_named_and_nothing_else() -> None:
    assert list(ModelOptions().lines()) == []
    options = ModelOptions(dense_weights="fp8", rope_scaling=YARN)
    assert [line.partition(":")[0] for line in options.lines()] == [
        "engine.dense_weights = fp8",
        "engine.rope_scaling = {'rope_type'",
    ]
    assert dict(options.changed()) == {"dense_weights": "fp8", "rope_scaling": YARN}


def test_flash_next_encodes_its_list_and_never_a_norm_a_router_or_the_table() -> None:
    found = held("qwen_flash_next", "tiny", draft=True, dense_weights="fp8")
    assert set(found.values()) == {"fp8_block128"}
    halves = [f"{half}_hyper_connection.input_mix_weight_{way}" for half in ("attn", "mlp") for way in ("down", "up")]
    attention = [f"attention.{name}_proj" for name in "qkvo"] + ["attention.indexer.index_qk_proj"]
    shared = [f"mlp.shared_expert.{name}_proj" for name in ("gate", "up", "down")]
    delta = [f"delta_net.{name}" for name in ("in_proj_qkv", "in_proj_z", "out_proj")]
    mixer = [f"hyper_connection_mixer.input_mix_weight_{way}" for way in ("down", "up")]
    both = [*halves, *attention, *shared]
    assert set(found) == {
        *(f"layers.{name}" for name in (*both, *delta, "ple.key_proj", "ple.value_proj")),
        *(f"mtp.layers.{name}" for name in both),
        *mixer,
        *(f"mtp.{name}" for name in mixer),
        "head",
    }


def test_what_is_quantised_stays_and_the_rest_is_encoded() -> None:
    found = held("qwen_flash_next", "int4-hybrid", dense_weights="fp8")
    assert "head" not in found
    assert not any("shared_expert" in path or "delta_net" in path for path in found)
    assert found["layers.ple.key_proj"] == found["layers.attn_hyper_connection.input_mix_weight_down"] == "fp8_block128"


def test_the_27b_encodes_its_head_alone_and_refuses_one_that_is_fp8() -> None:
    assert held("qwen35", "27b-fp8", dense_weights="fp8") == {"head": "fp8_block128"}
    words = r"engine\.dense_weights fp8 has nothing to encode: lm_head is stored as fp8_channel; supported: checkpoint"
    with pytest.raises(OptionsError, match=words):
        held("qwen35", "27b-nvfp4", dense_weights="fp8")


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("dense_weights", {"dense_weights": "fp8"}),
        ("mtp_expert_format", {"mtp_expert_format": "fp8"}),
        ("ngram_table", {"ngram_table": "mmap"}),
        ("ngram_table_model", {"ngram_table_model": "ORG/NAME"}),
        ("rope_scaling", {"rope_scaling": YARN}),
    ],
)
def test_a_family_without_an_option_refuses_it_by_key(key: str, options: dict[str, Any]) -> None:
    found, config, tree = release("llama", "tiny")

    def apply(given: ModelOptions) -> None:
        held_tree(found, tree, given, 1)
        ngram_source(found, config, given)
        scaled_config(found, config, given)

    apply(ModelOptions())
    with pytest.raises(OptionsError, match=rf"engine\.{key} is not supported by family llama"):
        apply(ModelOptions(**options))


def test_a_model_without_a_table_cannot_map_one() -> None:
    found, config, _ = release("qwen_flash_next", "tiny")
    assert ngram_source(found, config, ModelOptions(ngram_table="mmap")) is found.supports.ngram_table
    assert ngram_source(found, config, ModelOptions()) is None
    with pytest.raises(OptionsError, match=r"engine\.ngram_table is not supported by family qwen_flash_next or its"):
        ngram_source(found, replace(config, ple_layers=()), ModelOptions(ngram_table="mmap"))


def test_the_draft_layers_experts_are_encoded_one_by_one_or_fused() -> None:
    prefix = "mtp.layers.mlp.experts."
    fused = held("qwen_flash_next", "nvfp4-fused-draft", draft=True, mtp_expert_format="fp8")
    assert fused == dict.fromkeys((f"{prefix}gate_up_proj", f"{prefix}down_proj"), "fp8_block128")
    single = held("qwen35", "122b-nvfp4", draft=True, mtp_expert_format="fp8")
    assert single == {f"{prefix}{name}_proj": "fp8_block128" for name in ("gate", "up", "down")}
    with pytest.raises(
        OptionsError, match=r"mtp_expert_format fp8 has nothing to encode: .* is stored as gptq_int4_g128"
    ):
        held("qwen_flash_next", "int4-hybrid", draft=True, mtp_expert_format="fp8")
    with pytest.raises(OptionsError, match="nothing to encode: no such tensor is open"):
        held("qwen_flash_next", "fp8", mtp_expert_format="fp8")


@pytest.mark.parametrize("value", ["bf12", "bf12+bf16"])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_bf12_holds_the_linears_whose_slices_it_can(value: str, world: int) -> None:
    def cut(axis: int, size: int) -> Leaves:
        return Leaves(axis, even_ranges(size))

    tree: SpecTree = {
        "embed": TensorSpec("embed", (64, 1024), ("vocab", "embed"), plain=True),
        "norm": TensorSpec("norm", (1024,), ("embed",)),
        "up": TensorSpec("up", (64, 1024), ("mlp", "embed"), leaves=cut(0, 64)),
        "down": TensorSpec("down", (64, 2048), ("embed", "mlp"), leaves=cut(1, 2048)),
        "wide": TensorSpec("wide", (64, 4096), ("embed", "mlp"), leaves=cut(1, 4096)),
        "narrow": TensorSpec("narrow", (64, 1000), ("mlp", "embed")),
        "fp8": TensorSpec("fp8", (64, 1024), ("mlp", "embed"), "fp8_channel"),
    }
    out, notes = held_tree(FAMILIES["llama"], tree, ModelOptions(bf16_weights=value), world)
    packed = {path for path, spec in flatten(out) if spec.resident == "bf12"}
    assert packed == ({"up", "down", "wide"} if world == 1 else {"up", "wide"})
    assert f"{len(packed)} of 4 BF16 linears are held in 12 bits" in notes[0]


def test_yarn_changes_the_angles_and_raises_the_ceiling() -> None:
    found, config, _ = release("qwen_flash_next", "tiny")
    scaled = scaled_config(found, config, ModelOptions(rope_scaling=YARN))
    assert (config.max_position_embeddings, scaled.max_position_embeddings) == (512, 2048)
    assert scaled.rope == config.rope.scaled({key: YARN[key] for key in ("factor", "original_max_position_embeddings")})
    tables: Callable[[Any], np.ndarray] = lambda c: found.constants(c, 2048, 1).replicated["cos"]  # noqa: E731
    assert tables(scaled).shape == tables(config).shape
    assert (tables(scaled) != tables(config)).any()
    assert scaled_config(found, config, ModelOptions()) is config


def test_yarn_is_refused_where_positions_are_scaled_already_and_for_wrong_fields() -> None:
    found, config, _ = release("qwen35", "tiny-dense")
    scaled = scaled_config(found, config, ModelOptions(rope_scaling=YARN))
    with pytest.raises(
        OptionsError, match=r"engine\.rope_scaling: the checkpoint already scales its positions \(yarn\)"
    ):
        scaled_config(found, scaled, ModelOptions(rope_scaling=YARN))
    with pytest.raises(OptionsError, match=r"engine\.rope_scaling\.truncate is not known; known are: factor"):
        scaled_config(found, config, ModelOptions(rope_scaling={**YARN, "truncate": True}))
    with pytest.raises(OptionsError, match=r"engine\.rope_scaling\.original_max_position_embeddings is missing"):
        scaled_config(found, config, ModelOptions(rope_scaling={"factor": 2}))
    with pytest.raises(OptionsError, match=r"engine\.rope_scaling\.type 'linear' is not supported; supported: yarn"):
        ModelOptions(rope_scaling={"type": "linear", "factor": 2})
    with pytest.raises(OptionsError, match=r"engine\.rope_scaling must be an object, got 4"):
        ModelOptions(rope_scaling=4)  # type: ignore[arg-type]


def test_a_tree_is_parted_and_merged_again() -> None:
    _, _, tree = release("qwen_flash_next", "fp8")
    paths = ("layers.ple.ngram_embedding", "head")
    rest, taken = parted(tree, paths)
    assert sorted(path for path, _ in flatten(taken)) == sorted(paths)
    assert not set(paths) & {path for path, _ in flatten(rest)}
    assert dict(flatten(merged(rest, taken))) == dict(flatten(tree))
