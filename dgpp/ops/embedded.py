"""Remakes the embedded model, byte for byte: `python -m dgpp.ops.embedded DIR`.

Everything follows from this file and the texts in `dgpp/embedded/corpus`: a byte-level BPE tokenizer trained on them
(prose and code written for this purpose, the Apache License, the beginning of the Declaration of Independence and the
Gettysburg Address), a ChatML chat template, and random weights from a fixed seed. Any text survives encoding and
decoding, since all 256 bytes are tokens.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from dgpp.checkpoint.embedded import embedded_path
from dgpp.checkpoint.fixture import write_json, write_weights
from dgpp.models import family_of

VOCAB_SIZE = 2048
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # ids 0, 1, 2
SEED = 0

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "hidden_size": 64,
    "initializer_range": 0.125,
    "intermediate_size": 176,
    "max_position_embeddings": 4096,
    "mlp_bias": False,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": VOCAB_SIZE,
}

GENERATION_CONFIG = {"bos_token_id": 1, "eos_token_id": [2, 0], "pad_token_id": 2}

CHAT_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages and messages[0].role == 'system' %}
{{- messages[0].content + '\\n\\n' }}
{%- endif %}
{{- '# Tools\\n\\n<tools>' }}
{%- for tool in tools %}
{{- '\\n' }}{{ tool | tojson }}
{%- endfor %}
{{- '\\n</tools>\\n\\nCall one with <tool_call>\\n{"name": ..., "arguments": ...}\\n</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role not in ['system', 'user', 'assistant', 'tool'] %}
{{- raise_exception('unknown role ' + message.role) }}
{%- endif %}
{%- if not (tools and loop.first and message.role == 'system') %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": ' }}{{ call.function.name | tojson }}{{ ', "arguments": ' }}
{%- if call.function.arguments is string %}
{{- call.function.arguments }}
{%- else %}
{{- call.function.arguments | tojson }}
{%- endif %}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def make_embedded(directory: Path) -> None:
    """Writes the embedded model's checkpoint into `directory`, which may hold an older one."""
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / "tokenizer.json", train_tokenizer())
    write_json(directory / "tokenizer_config.json", tokenizer_config())
    write_json(directory / "config.json", CONFIG)
    write_json(directory / "generation_config.json", GENERATION_CONFIG)
    family = family_of(CONFIG)
    write_weights(family.abstract(family.config(CONFIG)), directory, SEED)


def train_tokenizer() -> dict[str, Any]:
    """The tokenizer.json: special tokens first, then the 256 bytes, then merges learned from the corpus."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    corpus = sorted((embedded_path() / "corpus").glob("*.txt"))
    tokenizer.train_from_iterator((path.read_text(encoding="utf-8") for path in corpus), trainer)
    if tokenizer.get_vocab_size() != VOCAB_SIZE:
        raise ValueError(f"the corpus gives {tokenizer.get_vocab_size()} tokens, not {VOCAB_SIZE}; it needs more text")
    parsed: dict[str, Any] = json.loads(tokenizer.to_str())
    return parsed


def tokenizer_config() -> dict[str, Any]:
    """The tokenizer_config.json with the chat template."""
    return {
        "added_tokens_decoder": {
            str(number): {
                "content": token,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            }
            for number, token in enumerate(SPECIAL)
        },
        "add_prefix_space": False,
        "bos_token": "<|im_start|>",
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "model_max_length": CONFIG["max_position_embeddings"],
        "pad_token": "<|im_end|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<|endoftext|>",
    }


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m dgpp.ops.embedded DIR")
    make_embedded(Path(sys.argv[1]))
