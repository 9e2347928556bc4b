"""One sequence on a core, fed by hand: what notebooks and the claims use, without a scheduler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from dgpp.engine.batch import Segment
from dgpp.engine.core import Core
from dgpp.kernels.rows import Phase


@dataclass
class Session:
    """A slot of a core and the number of tokens in its cache."""

    core: Core
    slot: int
    length: int = 0
    activations: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def segment(self, tokens: Sequence[int], phase: Phase, sampled: Sequence[int] = ()) -> Segment:
        """`tokens` as the next segment of this sequence."""
        return Segment(self.slot, self.length, tuple(tokens), phase, tuple(sampled))

    def last(self, tokens: Sequence[int], phase: Phase = Phase.PREFILL) -> np.ndarray:
        """Feeds `tokens` in one served step; the logits after the last of them, float32 [V]."""
        result = self.core.step([self.segment(tokens, phase, (len(tokens) - 1,))])
        self.length += len(tokens)
        return np.array(result.logits[0])

    def every(self, tokens: Sequence[int], phase: Phase = Phase.PREFILL, capture: Sequence[str] = ()) -> np.ndarray:
        """Feeds `tokens`, in as few steps as the row families allow; the logits after each, float32 [T, V].

        Activations that match `capture` are appended to `activations`, one array per step.
        """
        parts = []
        most = max(self.core.settings.row_families)
        for first in range(0, len(tokens), most):
            part = tokens[first : first + most]
            result = self.core.step_all([self.segment(part, phase, range(len(part)))], capture)
            self.length += len(part)
            parts.append(np.asarray(result.logits)[: len(part)])
            for name, array in result.activations.items():
                self.activations.setdefault(name, []).append(array)
        return np.concatenate(parts)

    def rewind(self, length: int) -> None:
        """Forgets all tokens from `length` on: what is written past the length is invisible.

        A model with recurrent layers can only go back within its last verify segment, or to 0; the next step says so.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot rewind {self.length} tokens to {length}")
        self.length = length


@contextmanager
def session(core: Core, slot: int, tokens: int) -> Iterator[Session]:
    """A session on `slot` with room for `tokens` tokens, freed at the end. Raises OutOfPages."""
    core.pool.reserve(slot, tokens)
    try:
        yield Session(core, slot)
    finally:
        core.pool.release(slot)
