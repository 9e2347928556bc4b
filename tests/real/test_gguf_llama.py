"""The converter on a GGUF small enough to write here."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import pytest
from tokenizers import Tokenizer, pre_tokenizers

from dgpp.checkpoint.reader import Checkpoint
from tests.real.gguf_llama import write_snapshot

D, HEADS, KV_HEADS, HEAD_DIM, F = 32, 2, 1, 16, 48
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCAB = [*SPECIAL, *BYTES, "he", "hel"]
SHAPES = {
    "model.embed_tokens": (len(VOCAB), D),
    "model.norm": (D,),
    "model.layers.0.input_layernorm": (D,),
    "model.layers.0.self_attn.q_proj": (HEADS * HEAD_DIM, D),
    "model.layers.0.self_attn.k_proj": (KV_HEADS * HEAD_DIM, D),
    "model.layers.0.self_attn.v_proj": (KV_HEADS * HEAD_DIM, D),
    "model.layers.0.self_attn.o_proj": (D, HEADS * HEAD_DIM),
    "model.layers.0.post_attention_layernorm": (D,),
    "model.layers.0.mlp.gate_proj": (F, D),
    "model.layers.0.mlp.up_proj": (F, D),
    "model.layers.0.mlp.down_proj": (D, F),
}
GGUF_NAMES = (
    "token_embd", "output_norm", "blk.0.attn_norm", "blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v", "blk.0.attn_output",
    "blk.0.ffn_norm", "blk.0.ffn_gate", "blk.0.ffn_up", "blk.0.ffn_down",
)  # fmt: skip


def interleaved(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows in GGUF's order, written out: the two dimensions of a rope pair become neighbours."""
    out = np.empty_like(values)
    half = HEAD_DIM // 2
    for head in range(heads):
        for i in range(half):
            out[head * HEAD_DIM + 2 * i] = values[head * HEAD_DIM + i]
            out[head * HEAD_DIM + 2 * i + 1] = values[head * HEAD_DIM + half + i]
    return out


def make(path: Path, pre: str = "smollm", architecture: str = "llama") -> dict[str, np.ndarray]:
    """Writes a GGUF and returns its float32 values by Hugging Face name, in Hugging Face's row order."""
    rng = np.random.default_rng(0)
    values = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(D)
    writer.add_feed_forward_length(F)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(100000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(VOCAB))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(VOCAB)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(VOCAB) - len(SPECIAL)))
    writer.add_token_merges(["h e", "he l"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{{ messages[0].content }}")
    for name, (source, array) in zip(GGUF_NAMES, values.items(), strict=True):
        heads = {"blk.0.attn_q": HEADS, "blk.0.attn_k": KV_HEADS}.get(name)
        stored = interleaved(array, heads) if heads else array
        if source == "model.embed_tokens":
            packed = gguf.quantize(stored, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(f"{name}.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
            values[source] = gguf.dequantize(packed, gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(f"{name}.weight", stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def test_every_tensor_is_the_dequantised_one_rounded_to_bf16(tmp_path: Path) -> None:
    values = make(tmp_path / "m.gguf")
    found = Checkpoint.open(write_snapshot(tmp_path / "m.gguf", tmp_path / "m"))
    assert found.tensors.keys() == {f"{name}.weight" for name in values}
    for name, array in values.items():
        np.testing.assert_array_equal(found.read(f"{name}.weight"), array.astype(ml_dtypes.bfloat16))


def test_the_config_names_what_the_gguf_says(tmp_path: Path) -> None:
    make(tmp_path / "m.gguf")
    config = Checkpoint.open(write_snapshot(tmp_path / "m.gguf", tmp_path / "m")).config
    expected = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": D,
        "intermediate_size": F,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000.0,
        "tie_word_embeddings": True,
        "eos_token_id": 2,
    }
    assert {key: config[key] for key in expected} == expected


def test_the_tokenizer_merges_splits_digits_and_keeps_special_tokens_whole(tmp_path: Path) -> None:
    make(tmp_path / "m.gguf")
    directory = write_snapshot(tmp_path / "m.gguf", tmp_path / "m")
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    assert tokenizer.encode("hello 12<|im_end|>").tokens == ["hel", "l", "o", "Ġ", "1", "2", "<|im_end|>"]
    text = "naïve ٣ 日本\t\n"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert json.loads((directory / "tokenizer_config.json").read_text())["chat_template"].startswith("{{ messages")


@pytest.mark.parametrize(("change", "message"), [({"pre": "llama-bpe"}, "pre"), ({"architecture": "qwen3"}, "qwen3")])
def test_what_it_does_not_know_is_refused_and_leaves_nothing(
    tmp_path: Path, change: dict[str, str], message: str
) -> None:
    make(tmp_path / "m.gguf", **change)
    with pytest.raises(ValueError, match=message):
        write_snapshot(tmp_path / "m.gguf", tmp_path / "m")
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


def test_a_directory_with_other_content_is_left_alone(tmp_path: Path) -> None:
    make(tmp_path / "m.gguf")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "letter.txt").write_text("mine")
    with pytest.raises(FileExistsError):
        write_snapshot(tmp_path / "m.gguf", tmp_path / "m")
    assert (tmp_path / "m" / "letter.txt").read_text() == "mine"
