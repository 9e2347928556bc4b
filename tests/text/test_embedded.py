"""The tokenizer and chat template of the embedded model, through every step of a chat."""

from __future__ import annotations

from pathlib import Path

import tokenizers

import dgpp
from dgpp.text.events import collect
from dgpp.text.messages import parse_messages
from dgpp.text.pipeline import Pipeline
from dgpp.text.segments import joined
from dgpp.text.template import ChatTemplate
from dgpp.text.tokenizer import Tokenizer

DIRECTORY = Path(dgpp.__file__).parent / "embedded"
TEXT = "Good morning, naïve 😀 world!\n\tx = {'a': [1, 2]}  <|im_end|>"


def test_a_chat_with_the_embedded_model() -> None:
    library = tokenizers.Tokenizer.from_file(str(DIRECTORY / "tokenizer.json"))
    tokenizer = Tokenizer.load(DIRECTORY)
    template = ChatTemplate.load(DIRECTORY, tokenizer)

    harmless = template.render(parse_messages([{"role": "user", "content": "How are you?"}]))
    assert tokenizer.encode_segments(harmless) == library.encode(joined(harmless)).ids
    typed = template.render(parse_messages([{"role": "user", "content": TEXT}]))
    control = set(tokenizer.control_tokens.values())
    assert [id for id in tokenizer.encode_segments(typed) if id in control] == [
        id for id in tokenizer.encode_segments(harmless) if id in control
    ]

    assert tokenizer.eos_id is not None
    ends = frozenset({tokenizer.eos_id})
    pipeline = Pipeline(tokenizer, eos=ends)
    tokens = [*tokenizer.encode(TEXT), *sorted(ends)]
    answer = collect([event for token in tokens for event in pipeline.feed(token)] + pipeline.finish("eos"))
    assert answer.content == TEXT


def test_every_byte_has_a_token() -> None:
    tokenizer = Tokenizer.load(DIRECTORY)
    alone = {tokenizer.token_bytes(id) for id in range(tokenizer.vocab_size)}
    assert {bytes([byte]) for byte in range(256)} <= alone
