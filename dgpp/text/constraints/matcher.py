"""A compiled grammar, and one walk through it, on the library `llguidance`."""

from __future__ import annotations

import llguidance
import numpy as np

from dgpp.text.constraints.errors import ConstraintFailed
from dgpp.text.constraints.limits import Limits
from dgpp.text.constraints.vocabulary import TokenVocabulary


class Grammar:
    """A grammar that compiled, for the continuations of one request. Its walks are used by one thread at a time."""

    def __init__(self, prototype: llguidance.LLMatcher, vocabulary: TokenVocabulary) -> None:
        self._prototype = prototype
        self.vocabulary = vocabulary

    @staticmethod
    def compile(source: str, vocabulary: TokenVocabulary, limits: Limits) -> Grammar:
        """The grammar of `source`, in the library's Lark or JSON form.

        Raises ValueError with the library's words. Other Python threads run while the library compiles.
        """
        matcher = llguidance.LLMatcher(vocabulary.library, source, log_level=0, limits=limits.parser())
        if matcher.is_error():
            raise ValueError(_plain(matcher.get_error()))
        return Grammar(matcher, vocabulary)

    @property
    def fits_something(self) -> bool:
        """Whether a first token is allowed, or none is needed."""
        start = self.walk()
        try:
            return start.complete or bool(start.mask().any())
        except ConstraintFailed:
            return False

    def walk(self) -> Walk:
        """A walk at the grammar's start."""
        return Walk(self._prototype.deep_copy(), self.vocabulary)


class Walk:
    """A place within a grammar. EOS is none of its business: it has no allowed id of its own for it."""

    def __init__(self, matcher: llguidance.LLMatcher, vocabulary: TokenVocabulary) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._mask: np.ndarray | None = None

    def copy(self) -> Walk:
        """The same place, to go on from independently."""
        twin = Walk(self._matcher.deep_copy(), self._vocabulary)
        twin._mask = self._mask
        return twin

    @property
    def complete(self) -> bool:
        """Whether what was accepted so far is a whole sentence of the grammar (which may yet be longer)."""
        return bool(self._matcher.is_accepting())

    def mask(self) -> np.ndarray:
        """bool [V]: ids that may follow; read-only. Nothing is True at a sentence that cannot be longer.

        Raises ConstraintFailed where the step goes over its limits.
        """
        if self._mask is None:
            if self._matcher.is_stopped() and not self._matcher.is_error():
                self._mask = np.zeros(self._vocabulary.vocab_size, dtype=bool)
            else:
                self._mask = self._compute()
            self._mask.setflags(write=False)
        return self._mask

    def takes(self, token: int) -> bool:
        """Whether `token` may follow; changes nothing."""
        return self._may_be_text(token) and self._matcher.validate_tokens([token]) == 1

    def accept(self, token: int) -> None:
        """Goes on past `token`. Raises ConstraintFailed where it may not follow; the walk is then of no more use."""
        self._mask = None
        if not self._may_be_text(token) or not self._matcher.consume_token(token):
            raise ConstraintFailed(f"token {token} is not allowed here: {_plain(self._matcher.get_error())}")

    def say(self, data: bytes) -> bool:
        """Goes on past text, however it is cut into tokens; False, and nothing changed, where it may not follow."""
        ids = self._vocabulary.spell(data)
        if ids is None or self._matcher.validate_tokens(ids) != len(ids):
            return False
        for id in ids:
            self.accept(id)
        return True

    def _may_be_text(self, token: int) -> bool:
        return token not in self._vocabulary.eos and bool(self._vocabulary.real[token])

    def _compute(self) -> np.ndarray:
        packed = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        if self._matcher.is_error():
            stuck = self._matcher.stop_reason() in ("NoExtension", "NoExtensionBias")
            why = "leads nowhere from here" if stuck else f"is too costly to go on: {_plain(self._matcher.get_error())}"
            raise ConstraintFailed(f"the grammar {why}")
        bits = np.zeros((self._vocabulary.vocab_size + 7) // 8, dtype=np.uint8)
        bits[: packed.size] = packed[: bits.size]  # a model's vocabulary may be wider than the tokenizer's
        mask = np.unpackbits(bits, count=self._vocabulary.vocab_size, bitorder="little").view(np.bool_)
        mask[self._vocabulary.eos_ids] = False
        return mask


def _plain(message: str) -> str:
    """The library's words on one line."""
    return " ".join(message.replace("<non-verbose/>", " ").split())[:300]
