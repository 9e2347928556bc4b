"""A tokenizer's vocabulary as constraints see it: the bytes of every id, and which ids are never text."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import llguidance
import numpy as np


class Tokens(Protocol):
    """What of dgpp.text.Tokenizer is needed here."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def special_ids(self) -> frozenset[int]: ...

    @property
    def control_tokens(self) -> Mapping[str, int]: ...

    def token_bytes(self, id: int) -> bytes: ...

    def encode(self, text: str, *, control: bool = False) -> list[int]: ...


class TokenVocabulary:
    """The vocabulary of a model, shared by all of its constraints.

    Control tokens and EOS are never text: a grammar allows them by their id only, so the spelling of a control token
    inside a JSON string is made of ordinary tokens. Ids without bytes, and those that the model has beyond the
    tokenizer's (padding), are never allowed. Safe to use from several threads.
    """

    def __init__(self, tokenizer: Tokens, vocab_size: int, eos: frozenset[int]) -> None:
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size  # ids that a mask covers
        self.eos = frozenset(id for id in eos if id < vocab_size)
        self.eos_ids = np.array(sorted(self.eos), dtype=np.intp)
        self._lock = threading.Lock()
        self._library: llguidance.LLTokenizer | None = None
        self._bytes: list[bytes] = []
        self._ids: dict[bytes, int] = {}
        self._real: np.ndarray | None = None
        self._completing: dict[bytes, tuple[tuple[tuple[int, bytes], ...], ...]] = {}
        controls = set(tokenizer.control_tokens.values()) | tokenizer.special_ids | self.eos
        self.controls: frozenset[int] = frozenset(id for id in controls if id < vocab_size)

    @staticmethod
    def of(tokenizer: Tokens, vocab_size: int, eos: Iterable[int]) -> TokenVocabulary:
        """The vocabulary of a model with `vocab_size` logits whose answers end at any of `eos`."""
        return TokenVocabulary(tokenizer, vocab_size, frozenset(eos))

    @property
    def library(self) -> llguidance.LLTokenizer:
        """The library's tokenizer, built on first use (seconds for a large vocabulary: not on a request's path)."""
        with self._lock:
            if self._library is None:
                self._library = self._build()
            return self._library

    @property
    def real(self) -> np.ndarray:
        """bool [V]: ids that a model may ever choose, EOS among them. Read-only."""
        _ = self.library
        assert self._real is not None
        return self._real

    def token_bytes(self, id: int) -> bytes:
        """The text that `id` adds; none for a control token or an id outside the vocabulary."""
        _ = self.library
        return self._bytes[id] if 0 <= id < len(self._bytes) and id not in self.controls else b""

    def spell(self, data: bytes) -> list[int] | None:
        """Ids whose bytes make up `data`, longest first; None when the vocabulary cannot spell it."""
        _ = self.library
        ids: list[int] = []
        at = 0
        while at < len(data):
            size = next(
                (size for size in range(min(16, len(data) - at), 0, -1) if data[at : at + size] in self._ids), 0
            )
            if not size:
                return None
            ids.append(self._ids[data[at : at + size]])
            at += size
        return ids

    def completing(self, text: bytes) -> tuple[tuple[tuple[int, bytes], ...], ...]:
        """For each k below len(text): the ids that complete `text` when its first k bytes have just been said, each
        with what it says after it."""
        _ = self.library
        with self._lock:
            if text not in self._completing:
                self._completing[text] = self._complete(text)
            return self._completing[text]

    def _complete(self, text: bytes) -> tuple[tuple[tuple[int, bytes], ...], ...]:
        last = text[-1:]
        some = [(id, data) for id, data in enumerate(self._bytes) if last in data and id not in self.controls]
        found = []
        for said in (text[:k] for k in range(len(text))):
            whole = ((id, said + data) for id, data in some)
            found.append(tuple((id, data[data.index(text) + len(text) :]) for id, data in whole if text in data))
        return tuple(found)

    def _build(self) -> llguidance.LLTokenizer:
        size = min(self.tokenizer.vocab_size, self.vocab_size)
        self._bytes = [self.tokenizer.token_bytes(id) for id in range(size)]
        self._ids = {data: id for id, data in enumerate(self._bytes) if data and id not in self.controls}
        real = np.zeros(self.vocab_size, dtype=bool)
        real[:size] = [bool(data) for data in self._bytes]
        real[list(self.eos)] = True
        real.setflags(write=False)
        self._real = real
        wrapped = llguidance.TokenizerWrapper(_Wrapped(self._bytes, sorted(self.controls), self.eos, self.spell))
        return llguidance.LLTokenizer(wrapped, eos_token=sorted(self.eos) or None)


class _Wrapped:
    """The vocabulary in the shape that the library reads."""

    def __init__(self, tokens: Sequence[bytes], special: list[int], eos: frozenset[int], spell: object) -> None:
        self.tokens = list(tokens)
        self.special_token_ids = [id for id in special if id < len(tokens)]
        self.eos_token_id = min(eos, default=0)
        self.bos_token_id = None
        self._spell = spell

    def __call__(self, text: bytes | str) -> list[int]:
        return []  # canonical tokenizations are only asked for by features that are not used here
