"""A GGUF of a Llama-architecture model as a BF16 snapshot in Hugging Face layout.

Source of the format: the GGUF specification (ggml, docs/gguf.md) and the reader in the `gguf` package. Quantised
tensors are dequantised exactly to float32 and rounded to BF16, to nearest, ties to even. Two things differ from the
Hugging Face layout besides names: the rows of the q and k projections (see `_rotate_half_rows`), and the tokenizer,
which is stored as a vocabulary, a list of merges and the name of a pre-tokenizer.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from dgpp.checkpoint import safetensors

CONTROL = 3  # the GGUF token type of special tokens

GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def write_snapshot(source: Path, target: Path) -> Path:
    """Writes `target` from the GGUF at `source` and returns it; `target` appears complete or not at all.

    Raises FileExistsError when `target` exists and is not an empty directory, ValueError when the file is of another
    architecture or uses a tokenizer this converter does not know.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} exists and is not an empty directory")
    reader = gguf.GGUFReader(source)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        tied = all(tensor.name != "output.weight" for tensor in reader.tensors)
        _write_json(partial / "config.json", _config(fields, tied=tied))
        _write_json(partial / "generation_config.json", _token_ids(fields))
        _tokenizer(fields).save(str(partial / "tokenizer.json"))
        _write_json(partial / "tokenizer_config.json", _tokenizer_config(fields))
        safetensors.write(partial / "model.safetensors", _tensors(reader, fields), {"format": "pt"})
        partial.chmod(0o755)
        os.rename(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _config(fields: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    """config.json of LlamaForCausalLM."""
    if fields["general.architecture"] != "llama":
        raise ValueError(f"general.architecture is {fields['general.architecture']!r}, expected 'llama'")
    heads = fields["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "head_dim": fields["llama.rope.dimension_count"],
        "hidden_act": "silu",
        "hidden_size": fields["llama.embedding_length"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "max_position_embeddings": fields["llama.context_length"],
        "mlp_bias": False,
        "num_attention_heads": heads,
        "num_hidden_layers": fields["llama.block_count"],
        "num_key_value_heads": fields.get("llama.attention.head_count_kv", heads),
        "rms_norm_eps": _shortest(fields["llama.attention.layer_norm_rms_epsilon"]),
        "rope_scaling": None,
        "rope_theta": _shortest(fields["llama.rope.freq_base"]),
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": fields["llama.vocab_size"],
        **_token_ids(fields),
    }


def _shortest(value: float) -> float:
    """The shortest decimal that is the same float32: GGUF keeps 1e-05 as 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def _token_ids(fields: dict[str, Any]) -> dict[str, int]:
    return {
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "pad_token_id": fields["tokenizer.ggml.padding_token_id"],
    }


def _tensors(reader: gguf.GGUFReader, fields: dict[str, Any]) -> dict[str, tuple[str, np.ndarray]]:
    """(header tag, values) of every tensor as BF16, by its Hugging Face name."""
    heads = fields["llama.attention.head_count"]
    kv_heads = fields.get("llama.attention.head_count_kv", heads)
    tensors: dict[str, tuple[str, np.ndarray]] = {}
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if tensor.name in GLOBAL_NAMES:
            name = GLOBAL_NAMES[tensor.name]
        else:
            _, layer, module, suffix = tensor.name.split(".")
            name = f"model.layers.{layer}.{LAYER_NAMES[module]}.{suffix}"
            if module in ("attn_q", "attn_k"):
                values = _rotate_half_rows(values, heads if module == "attn_q" else kv_heads)
        tensors[name] = ("BF16", values.astype(ml_dtypes.bfloat16))
    return tensors


def _rotate_half_rows(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a q or k projection [heads*Dh, D] in the order that Hugging Face stores.

    Rope turns pairs of dimensions. GGUF puts the two of a pair side by side (2i, 2i+1); Hugging Face puts them half a
    head apart (i, i + Dh/2).
    """
    rows, columns = values.shape
    pairs = values.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def _tokenizer(fields: dict[str, Any]) -> Tokenizer:
    """The byte-level BPE tokenizer. "smollm" splits digits one by one, then like GPT-2."""
    kind = (fields["tokenizer.ggml.model"], fields["tokenizer.ggml.pre"])
    if kind != ("gpt2", "smollm"):
        raise ValueError(f"tokenizer.ggml.model and .pre are {kind}, expected ('gpt2', 'smollm')")
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(tokens[i], normalized=False, special=True) for i in _special_ids(fields)])
    return tokenizer


def _special_ids(fields: dict[str, Any]) -> list[int]:
    return [i for i, kind in enumerate(fields["tokenizer.ggml.token_type"]) if kind == CONTROL]


def _tokenizer_config(fields: dict[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json: special tokens by role, and the chat template."""
    tokens = fields["tokenizer.ggml.tokens"]
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(i): {
                "content": tokens[i],
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            }
            for i in _special_ids(fields)
        },
        "bos_token": tokens[fields["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[fields["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[fields["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[fields["tokenizer.ggml.unknown_token_id"]],
        "chat_template": fields["tokenizer.chat_template"],
        "clean_up_tokenization_spaces": False,
        "model_max_length": fields["llama.context_length"],
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
