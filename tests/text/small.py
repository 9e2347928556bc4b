"""Small tokenizers of the kinds that checkpoints publish, built here, with the library's own for comparison."""

from __future__ import annotations

import functools
import json
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from dgpp.text.tokenizer import Tokenizer

CORPUS = [
    "The quick brown fox jumps over the lazy dog. He said: hello, world! How are you today?",
    "user assistant system tool call response think answer question 0123456789",
    'def main():\n    print(\'hello\')\n\n    return {"city": "Paris", "n": [1, 2, 3]}',
    "שלום עולם 你好世界 こんにちは 😀👩‍👩‍👧 naïve café",
] * 20

CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
LLAMA3 = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
BRACKETS = ("[INST]", "[/INST]")


@functools.cache
def byte_level_library() -> tokenizers.Tokenizer:
    """Byte-level BPE with special and non-special added tokens."""
    library = tokenizers.Tokenizer(models.BPE())
    library.normalizer = normalizers.NFC()
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    library.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    )
    library.add_special_tokens([tokenizers.AddedToken(text, special=True) for text in CHATML + LLAMA3])
    library.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in (*MARKERS, "        ")])
    return library


@functools.cache
def byte_level() -> Tokenizer:
    """The same through our reader."""
    return Tokenizer(spec_of(byte_level_library()), {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"})


@functools.cache
def llama2_library() -> tokenizers.Tokenizer:
    """SentencePiece-like BPE: U+2581 for a space, byte fallback, a space put before the text, BOS by a template."""
    return _sentencepiece_bpe(
        normalizer=normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        pre_tokenizer=None,
        decoder=decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        ),
    )


@functools.cache
def metaspace_library(scheme: str) -> tokenizers.Tokenizer:
    """The newer spelling of the same: a Metaspace pre-tokenizer and decoder."""
    return _sentencepiece_bpe(
        normalizer=None,
        pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False),
        decoder=decoders.Sequence(
            [decoders.Metaspace(prepend_scheme=scheme), decoders.ByteFallback(), decoders.Fuse()]
        ),
    )


@functools.cache
def llama2() -> Tokenizer:
    """`llama2_library` through our reader."""
    return Tokenizer(spec_of(llama2_library()), {"bos_token": "<s>", "eos_token": {"content": "</s>"}})


@functools.cache
def metaspace(scheme: str) -> Tokenizer:
    """`metaspace_library` through our reader."""
    return Tokenizer(spec_of(metaspace_library(scheme)), {"bos_token": "<s>", "eos_token": "</s>"})


@functools.cache
def unigram_library() -> tokenizers.Tokenizer:
    """A unigram model, in which the spelling of a special token is an entry that plain text reaches."""
    library = tokenizers.Tokenizer(models.Unigram())
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    library.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>", "</s>", "<|im_end|>"], unk_token="<unk>", show_progress=False
    )
    library.train_from_iterator([*CORPUS, "< | im _ end > / s"], trainer)
    return library


@functools.cache
def unigram() -> Tokenizer:
    """`unigram_library` through our reader."""
    return Tokenizer(spec_of(unigram_library()), {"eos_token": "</s>", "unk_token": "<unk>"})


def spec_of(library: tokenizers.Tokenizer) -> dict[str, Any]:
    """The content of its tokenizer.json."""
    spec: dict[str, Any] = json.loads(library.to_str())
    return spec


def _sentencepiece_bpe(normalizer: Any, pre_tokenizer: Any, decoder: Any) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    latin = [chr(code) for code in range(32, 127)]
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=pieces, initial_alphabet=latin, limit_alphabet=100, show_progress=False
    )
    library.train_from_iterator(CORPUS, trainer)
    # Byte pieces are ordinary entries of the model; the trainer knows no other way to give them their ids.
    spec = json.loads(library.to_str())
    spec["added_tokens"] = spec["added_tokens"][:3]
    library = tokenizers.Tokenizer.from_str(json.dumps(spec))
    if normalizer is not None:
        library.normalizer = normalizer
    if pre_tokenizer is not None:
        library.pre_tokenizer = pre_tokenizer
    else:
        spec = json.loads(library.to_str()) | {"pre_tokenizer": None}
        library = tokenizers.Tokenizer.from_str(json.dumps(spec))
    library.decoder = decoder
    library.add_special_tokens([tokenizers.AddedToken(text, special=True, normalized=False) for text in BRACKETS])
    library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return library
