"""The page pool: which physical pages of the K/V planes belong to which slot (spec E-5.1).

One table serves every plane: logical page m of a slot holds its tokens [m*P, (m+1)*P) under one physical number.
Pages are reserved before a request starts, so decoding never grows anything, and are not scrubbed when freed: a new
owner writes every row before it reads it.
"""

from __future__ import annotations

import numpy as np


class OutOfPages(Exception):
    """A reservation that does not fit the free pages; nothing was changed."""


class PagePool:
    """`pages` pages of `page_tokens` tokens for `slots` slots, each of at most `pages_per_slot` pages."""

    def __init__(self, pages: int, page_tokens: int, slots: int, pages_per_slot: int) -> None:
        self.pages = pages
        self.page_tokens = page_tokens
        self.table = np.zeros((slots, pages_per_slot), np.int32)
        self._held: list[list[int]] = [[] for _ in range(slots)]
        self._free = list(range(pages - 1, -1, -1))  # last in, first out; page 0 is handed out first

    @property
    def free(self) -> int:
        """Pages nobody holds."""
        return len(self._free)

    @property
    def in_use(self) -> int:
        """Pages that slots hold."""
        return self.pages - len(self._free)

    def pages_for(self, tokens: int) -> int:
        """Pages that `tokens` tokens take."""
        return -(-tokens // self.page_tokens)

    def reserve(self, slot: int, tokens: int) -> None:
        """Gives an empty slot the pages of `tokens` tokens, or raises OutOfPages and changes nothing."""
        need = self.pages_for(tokens)
        if self._held[slot]:
            raise ValueError(f"slot {slot} already holds {len(self._held[slot])} pages")
        if need > self.table.shape[1]:
            raise OutOfPages(f"{tokens} tokens need {need} pages, a slot has at most {self.table.shape[1]}")
        if need > len(self._free):
            raise OutOfPages(f"{tokens} tokens need {need} pages, {len(self._free)} of {self.pages} are free")
        self._held[slot] = [self._free.pop() for _ in range(need)]
        self.table[slot, :need] = self._held[slot]

    def release(self, slot: int) -> None:
        """Returns all pages of a slot."""
        self._free.extend(reversed(self._held[slot]))
        self._held[slot] = []
        self.table[slot] = 0
