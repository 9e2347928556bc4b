"""Grammar text into compiled grammars, with those used last remembered."""

from __future__ import annotations

import threading
from collections import OrderedDict

from dgpp.text.constraints.limits import Limits
from dgpp.text.constraints.matcher import Grammar
from dgpp.text.constraints.vocabulary import TokenVocabulary


class Builder:
    """Compiles for one vocabulary under one set of limits. Safe to use from several threads."""

    def __init__(self, vocabulary: TokenVocabulary, limits: Limits, remembered: int = 0) -> None:
        self.vocabulary = vocabulary
        self.limits = limits
        self._remembered = remembered
        self._lock = threading.Lock()
        self._grammars: OrderedDict[str, Grammar] = OrderedDict()
        self._good: OrderedDict[str, None] = OrderedDict()

    def grammar(self, source: str) -> Grammar:
        """The compiled grammar. Raises ValueError with the library's words."""
        with self._lock:
            if source in self._grammars:
                self._grammars.move_to_end(source)
                return self._grammars[source]
        grammar = Grammar.compile(source, self.vocabulary, self.limits)
        with self._lock:
            self._grammars[source] = grammar
            _shorten(self._grammars, self._remembered)
        return grammar

    def verify(self, source: str) -> None:
        """Compiles only to see whether that is possible. Raises ValueError where it is not."""
        with self._lock:
            if source in self._good:
                return
        Grammar.compile(source, self.vocabulary, self.limits)
        with self._lock:
            self._good[source] = None
            _shorten(self._good, 32 * self._remembered)


def _shorten(entries: OrderedDict[str, Grammar] | OrderedDict[str, None], count: int) -> None:
    while len(entries) > count:
        entries.popitem(last=False)
