"""What claims are examined on: a model, how thoroughly, and the steps they take on its core."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dgpp.engine.batch import Segment
from dgpp.engine.core import Core
from dgpp.engine.engine import LocalEngine
from dgpp.engine.request import Engine
from dgpp.kernels.rows import Phase
from dgpp.lab.model import Model


@dataclass(frozen=True)
class Effort:
    """How much is compared. The defaults are what a claim promises; tests of the claims themselves take less."""

    neighbours: int = 32  # rows: up to this many other rows
    prompt: int = 100  # phase, chunk, lab, world: tokens
    widths: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8)  # phase: rows of a verify group
    generated: int = 24  # sample, restart: tokens
    company: int = 6  # sample: requests beside the one that is looked at


FULL = Effort()
QUICK = Effort(neighbours=12, prompt=40, widths=(2, 4, 8), generated=12)
EFFORTS = {"full": FULL, "quick": QUICK}


@dataclass
class Subject:
    """The model under examination. `serve` makes the engine that requests are sent to."""

    model: Model
    effort: Effort = FULL
    serve: Callable[[Core], Engine] = LocalEngine
    _worlds: dict[int, Core] = field(default_factory=dict)

    @property
    def core(self) -> Core:
        """The model's own core."""
        return self.model.core

    @property
    def page(self) -> int:
        """Tokens of a page."""
        return self.core.settings.page_tokens

    @property
    def slot_tokens(self) -> int:
        """Tokens that one slot of an otherwise empty pool can hold."""
        return min(self.core.position_ceiling, self.core.pool.table.shape[1] * self.page)

    def world(self, size: int) -> Core:
        """A core of this model in a world of `size` ranks, otherwise with the same settings."""
        if size == self.core.settings.world:
            return self.core
        if size not in self._worlds:
            model, settings = self.model, replace(self.core.settings, world=size)
            kernels, ngrams = self.core.kernels, self.core.ngrams
            self._worlds[size] = Core(model.family, model.config, model.weights, settings, kernels, model.tree, ngrams)
        return self._worlds[size]

    def tokens(self, count: int, stream: int = 0) -> tuple[int, ...]:
        """`count` token ids, the same on every machine; another sequence for every `stream`."""
        words = np.random.PCG64(np.random.SeedSequence([2026, stream])).random_raw(count)
        return tuple(int(word) for word in words % np.uint64(self.model.config.vocab_size))


def served(core: Core, slot: int, start: int, tokens: Sequence[int], phase: Phase, places: Iterable[int]) -> np.ndarray:
    """Feeds `tokens` at `start` of `slot` in served steps; the logits after those at `places`, float32 [n, V].

    A step returns logits of a few rows only. For more, the slot is put back and the same rows are fed again, which
    writes the same state.
    """
    wanted, most, parts = sorted(places), max(core.settings.row_families), []
    for first in range(0, len(tokens), most):
        part = tuple(tokens[first : first + most])
        here = [place - first for place in wanted if first <= place < first + len(part)]
        before = core.keep(slot)
        for at in range(0, max(1, len(here)), core.samples):
            if at:
                core.restore(slot, before)
            sampled = tuple(here[at : at + core.samples])
            result = core.step([Segment(slot, start + first, part, phase, sampled)])
            parts.append(np.asarray(result.logits)[: len(sampled)])
    return np.concatenate(parts)


def spread(count: int, most: int) -> list[int]:
    """At most `most` places of 0 … count - 1, evenly spread, with the first and the last."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})
