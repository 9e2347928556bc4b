"""A set of delimiters in text that arrives in parts: where the first one is, and what might still begin one."""

from __future__ import annotations

import re
from collections.abc import Iterable


class Ends:
    """Delimiters of which none is the beginning of another, so that the first one found does not depend on how the
    text was cut."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises ValueError for an empty set, an empty delimiter, or one that begins another."""
        self.texts = frozenset(texts)
        self._beginnings = frozenset(text[:length] for text in self.texts for length in range(1, len(text)))
        if not self.texts or "" in self.texts or self.texts & self._beginnings:
            raise ValueError("delimiters may be neither empty nor the beginning of each other")
        self._longest = max(map(len, self.texts))
        self._pattern = re.compile("|".join(map(re.escape, sorted(self.texts))))

    def find(self, text: str, at: int = 0) -> re.Match[str] | None:
        """The leftmost delimiter in `text`, from `at` on."""
        return self._pattern.search(text, at)

    def held(self, text: str, at: int = 0) -> int:
        """The length of the longest suffix of `text`, from `at` on, that is a proper beginning of a delimiter."""
        longest = min(len(text) - at, self._longest - 1)
        return next((size for size in range(longest, 0, -1) if text[-size:] in self._beginnings), 0)
