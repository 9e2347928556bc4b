"""Grammar text into compiled grammars."""

from __future__ import annotations

import threading
from collections import OrderedDict

from dgpp.text.constraints.limits import Limits
from dgpp.text.constraints.matcher import Grammar
from dgpp.text.constraints.vocabulary import TokenVocabulary

_REMEMBERED = 4096  # grammars known to compile


class Builder:
    """Compiles for one vocabulary under one set of limits. Safe to use from several threads.

    A compiled grammar is never given to two requests: walks through it share the states of its lexer and so their
    limit, and what one request is allowed must not depend on the requests before it.
    """

    def __init__(self, vocabulary: TokenVocabulary, limits: Limits) -> None:
        self.vocabulary = vocabulary
        self.limits = limits
        self._lock = threading.Lock()
        self._good: OrderedDict[str, None] = OrderedDict()

    def grammar(self, source: str) -> Grammar:
        """A compiled grammar. Raises ValueError with the library's words."""
        return Grammar.compile(source, self.vocabulary, self.limits)

    def verify(self, source: str) -> None:
        """Compiles only to see whether that is possible, once. Raises ValueError where it is not."""
        with self._lock:
            if source in self._good:
                self._good.move_to_end(source)
                return
        self.grammar(source)
        with self._lock:
            self._good[source] = None
            while len(self._good) > _REMEMBERED:
                self._good.popitem(last=False)
