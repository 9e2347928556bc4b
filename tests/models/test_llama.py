from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dgpp.checkpoint.slicing import local_shape, rank_bytes
from dgpp.checkpoint.spec import Leaves, flatten
from dgpp.engine.session import session
from dgpp.kernels.rows import Phase
from dgpp.models import ConfigError, family_of, llama, llama_releases
from dgpp.models.heads import head_index
from tests.tiny import tiny_core, tokens

PLAIN = [release.name for release in llama_releases.PLAIN]
RAW: dict[str, Any] = {**llama.RELEASES["tiny"].config, "vocab_size": 259}
SMOLLM2: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "hidden_size must be a positive integer, got None"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a positive integer, got True"),
        ({"vocab_size": "259"}, "vocab_size must be a positive integer, got '259'"),
        ({"num_key_value_heads": 3}, "num_attention_heads 4 is not a multiple of num_key_value_heads 3"),
        ({"head_dim": 20}, "head_dim 20 is not a multiple of 16"),
        ({"attention_bias": True}, "attention_bias=true is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps must be in"),
        ({"rope_scaling": {"rope_type": "longrope"}}, "rope_type 'longrope' is not supported"),
    ],
)
def test_a_config_that_cannot_run_names_its_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        llama.config({**RAW, **change})


def test_an_unknown_architecture_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"\['MambaForCausalLM'\] is not supported; supported: LlamaForCausalLM"):
        family_of({"architectures": ["MambaForCausalLM"]})
    with pytest.raises(ConfigError, match="architectures"):
        family_of({})


def test_the_tree_of_smollm2_has_the_published_size() -> None:
    tree = llama.abstract(llama.config(SMOLLM2))
    assert sum(spec.nbytes for _, spec in flatten(tree)) == 134_515_008 * 2
    names = {array.tensor for _, spec in flatten(tree) for module in spec.modules() for array in module.arrays}
    assert len(names) == 30 * 9 + 2
    assert "model.layers.29.mlp.down_proj.weight" in names


def test_nine_heads_are_cut_in_leaves_of_2_2_2_and_3_and_each_rank_finds_its_kv_heads() -> None:
    c = llama.config(SMOLLM2)
    leaves = llama.layer_specs(c)["o_proj"].leaves
    assert isinstance(leaves, Leaves)
    assert [(b - a) // 64 for a, b in leaves.ranges] == [2, 2, 2, 3]
    assert head_index(c.kv_head_of, 9, 1).tolist() == [[0, 0, 0, 1, 1, 1, 2, 2, 2]]
    # A rank of two holds two leaves of three heads, padded; its K/V heads start at the first one it needs.
    assert head_index(c.kv_head_of, 9, 2).tolist() == [[0, 0, 0, 0, 1, 0], [0, 0, 0, 1, 1, 1]]
    assert head_index(c.kv_head_of, 9, 4).tolist() == [[0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert local_shape(llama.layer_specs(c)["k_proj"], 4) == (128, 576)


@pytest.mark.parametrize("release", PLAIN)
def test_E_2_8_bytes_of_all_ranks_are_the_published_bytes_plus_what_is_replicated_or_padded(release: str) -> None:
    c = llama.config({**llama.RELEASES[release].config, "vocab_size": 259})
    for _, spec in flatten(llama.abstract(c)):
        for world in (2, 4):
            ranks = rank_bytes(spec, world) * world
            assert ranks >= spec.nbytes
            if spec.leaves is None:
                assert ranks == world * spec.nbytes


@pytest.mark.parametrize("release", PLAIN)
def test_every_world_and_every_phase_gives_the_same_logits(release: str) -> None:
    prompt = tokens(60)
    core = tiny_core(release)
    with session(core, 0, 64) as one:
        expected = one.every(prompt)
    assert np.isfinite(expected).all()
    assert expected.std() > 0.1
    with session(core, 3, 64) as one:
        stepped = np.stack([one.last([token], Phase.DECODE) for token in prompt])
    assert stepped.tobytes() == expected.tobytes()
    for world in (2, 4):
        with session(tiny_core(release, world=world), 1, 64) as one:
            assert one.every(prompt).tobytes() == expected.tobytes()


def test_a_rewound_session_gives_the_bits_of_one_that_never_took_the_turn() -> None:
    core = tiny_core()
    prompt, wrong = tokens(40), tokens(8, seed=9)
    with session(core, 0, 64) as one:
        expected = one.every(prompt)
    with session(core, 0, 64) as one:
        one.every(prompt[:30])
        one.every(wrong, Phase.VERIFY)
        one.rewind(30)
        assert one.every(prompt[30:]).tobytes() == expected[30:].tobytes()
