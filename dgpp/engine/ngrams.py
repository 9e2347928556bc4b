"""Rows of an n-gram table that stays in its files: read on the host for every step, before the step runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dgpp.checkpoint.mapped import MappedTable
from dgpp.formats.bf16 import BFLOAT16
from dgpp.layers.ngram import NgramTable


class NgramReader:
    """What `Rows.ngrams` of a batch holds: for every row the table's rows of its token and the ones before it."""

    def __init__(self, table: NgramTable, source: MappedTable, world: int) -> None:
        """`table` hashes, `source` has the rows; in a world of several ranks each gets those of its hash heads."""
        self._table, self._source, self._world = table, source, world

    @property
    def back(self) -> int:
        """The number of tokens before its own that a row depends on."""
        return self._table.ngram_size - 1

    def rows(self, texts: Sequence[tuple[Sequence[int], Sequence[int]]], family: int) -> np.ndarray:
        """bf16 [family, E] of the rows of all segments, zeros behind them; [W, family, E / W] for W ranks.

        `texts` has (the tokens before the segment, at least `back` of them if there are as many; its tokens).
        """
        ids = [self._table.ids(tokens, before) for before, tokens in texts]
        width = self._table.heads * self._source.spec.shape[1]
        out = np.zeros((family, width), BFLOAT16)
        if ids:
            found = self._source.rows(np.concatenate(ids))
            out[: len(found)] = found.reshape(len(found), width)
        if self._world == 1:
            return out
        return np.ascontiguousarray(out.reshape(family, self._world, -1).swapaxes(0, 1))
