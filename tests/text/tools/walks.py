"""Random answers that a grammar allows, over a small byte-level vocabulary."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import llguidance

from dgpp.text.events import Call
from dgpp.text.tools.dialect import Dialect

from .support import CONTROL, EOS

# Tokens across the borders of what grammars are made of.
MERGED = [
    *("\n\n", "</", ">\n", '">', '"}', '": ', "é", "parameter", "x</", "<parameter=", "</parameter>"),
    *("\n</parameter>\n", "</parameter>\n<", "\n</function>\n", "[1", "true", "a<", ' string="true">', "}\n"),
    *(" invoke>\n", '"}}\n', " calls>", "tool_calls>", "</function>", "<tool_call>", "</arg_value><", "｜DSML｜"),
]
TOKENS: list[bytes] = [b"", b"<eos>", *(text.encode() for text in CONTROL)]
TOKENS += [bytes([byte]) for byte in range(256)] + [text.encode() for text in MERGED]
_FIRST_BYTE = 2 + len(CONTROL)
_SPECIAL = [EOS, *CONTROL.values()]


class _Vocabulary:
    tokens = TOKENS
    eos_token_id = EOS
    bos_token_id = None
    special_token_ids = _SPECIAL

    def __call__(self, text: bytes | str) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        return [_FIRST_BYTE + byte for byte in data]


LIBRARY = llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Vocabulary()), eos_token=EOS)


def value(schema: Mapping[str, Any] | None, strict: bool) -> str | None:
    """A rule for values of a schema, without blanks around them."""
    return "%json " + json.dumps({**(schema or {}), "x-guidance": {"whitespace_flexible": False}})


def matcher(grammar: str) -> llguidance.LLMatcher:
    """A walk's start. Raises AssertionError with the library's words for a grammar that it does not take."""
    found = llguidance.LLMatcher(LIBRARY, llguidance.LLMatcher.grammar_from_lark(grammar), log_level=0)
    assert not found.is_error(), f"{found.get_error()}\n{grammar}"
    return found


def allowed(found: llguidance.LLMatcher) -> list[int]:
    return [id for id, byte in enumerate(found.compute_logit_bias()) if byte]


def ids(text: str, dialect_markers: frozenset[int]) -> list[int]:
    """`text` as control tokens and single bytes."""
    result: list[int] = []
    while text:
        control = next((t for t, id in CONTROL.items() if id in dialect_markers and text.startswith(t)), None)
        if control is not None:
            result.append(CONTROL[control])
        else:
            result += [_FIRST_BYTE + byte for byte in text[0].encode()]
        text = text[len(control or text[0]) :]
    return result


def accepts(grammar: str, tokens: Sequence[int]) -> bool:
    """Whether `tokens` are a whole text of the grammar."""
    found = matcher(grammar)
    for token in tokens:
        if token not in allowed(found) or not found.consume_token(token):
            return False
    return EOS in allowed(found)


def endings(dialect: Dialect) -> list[list[int]]:
    """What a format writes after a string: before another argument, and to the end."""
    written = dialect.render([Call("f", '{"a": "FIRST", "KEY": "SECOND"}')])
    markers = dialect.parser((), streams=False).markers
    following = written.partition("FIRST")[2].partition("KEY")[0]
    return [ids(following, markers), ids(written.partition("SECOND")[2], markers)]


def walk(grammar: str, endings: Sequence[Sequence[int]], seed: int, most: int = 400) -> list[int] | None:
    """A random text of the grammar; None when it does not end in `most` tokens."""
    draw = random.Random(seed)
    found = matcher(grammar)
    tokens: list[int] = []
    while len(tokens) < most:
        choices = allowed(found)
        assert choices, f"nothing may follow {text(tokens)!r}\n{grammar}"
        if EOS in choices and (len(choices) == 1 or draw.random() < 0.5):
            return tokens
        choices = [token for token in choices if token != EOS]
        ending = draw.choice(endings)
        if draw.random() < 0.3 and found.validate_tokens(list(ending)) == len(ending):
            chosen = list(ending)
        else:
            merged = [token for token in choices if len(TOKENS[token]) > 1]
            letters = [token for token in choices if TOKENS[token].isalnum()]
            chosen = [draw.choice(draw.choice([merged or choices, letters or choices, choices]))]
        assert found.consume_tokens(chosen)
        tokens += chosen
    return None


def text(tokens: Sequence[int]) -> str:
    return b"".join(TOKENS[token] for token in tokens).decode("utf-8", "replace")
