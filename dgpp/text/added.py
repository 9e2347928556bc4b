"""Added tokens: the entries of a tokenizer that are matched as whole strings before the model sees the text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class AddedToken:
    """One added token, with the fields of `tokenizer.json` that decide where it matches."""

    id: int
    text: str
    special: bool = False  # hidden from decoded text
    lstrip: bool = False  # swallows the whitespace before it
    rstrip: bool = False  # swallows the whitespace after it
    single_word: bool = False  # matches only between non-word characters

    @staticmethod
    def read(entry: dict[str, Any], id: int) -> AddedToken:
        """The token of an `added_tokens` or `added_tokens_decoder` entry."""
        flags = {name: bool(entry.get(name, False)) for name in ("special", "lstrip", "rstrip", "single_word")}
        return AddedToken(id, entry["content"], **flags)

    @property
    def is_whitespace(self) -> bool:
        """Whether it is a run of blanks: ordinary vocabulary that some tokenizers keep among the added tokens."""
        return not self.special and self.text.isspace()


@dataclass(frozen=True)
class Match:
    """`text[start:end]` stands for token `id`."""

    start: int
    end: int
    id: int


class AddedTokenMatcher:
    """Finds added tokens: the leftmost first, of several at one place the longest."""

    def __init__(self, tokens: Iterable[AddedToken]) -> None:
        self.tokens = {token.text: token for token in tokens}
        texts = sorted(self.tokens, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, texts))) if texts else None

    def find(self, text: str, start: int, end: int) -> Iterator[Match]:
        """The tokens that lie wholly in `text[start:end]`. The whitespace that one swallows may lie outside."""
        if self._pattern is None:
            return
        floor = 0
        for found in self._pattern.finditer(text, start, end):
            token = self.tokens[found.group()]
            left, right = found.span()
            if token.single_word and (_is_word(text[left - 1 : left]) or _is_word(text[right : right + 1])):
                continue
            while token.lstrip and left > floor and text[left - 1].isspace():
                left -= 1
            while token.rstrip and right < len(text) and text[right].isspace():
                right += 1
            floor = right
            yield Match(left, right, token.id)


def _is_word(character: str) -> bool:
    return bool(re.match(r"\w", character))
