"""From raw logits to penalised ones: repetition, frequency, presence, bias, mask, in this order (spec E-8.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dgpp.engine.request import Sampling
from dgpp.engine.sampler.fma import fma_f
from dgpp.engine.sampler.settings import LARGEST, penalises


class History:
    """How often every id occurred, in the prompt and among the accepted tokens alike."""

    def __init__(self, prompt: Sequence[int]) -> None:
        ids, counts = np.unique(np.asarray(prompt, np.int64), return_counts=True)
        self._used = len(ids)
        self._ids = ids
        self._counts = counts.astype(np.float64)
        self._place = {token: place for place, token in enumerate(ids.tolist())}

    @property
    def ids(self) -> np.ndarray:
        """The ids that occurred, int64 [N]: the prompt's ascending, then the others in order of appearance."""
        return self._ids[: self._used]

    @property
    def counts(self) -> np.ndarray:
        """Their numbers of occurrences, float64 [N], whole numbers."""
        return self._counts[: self._used]

    def add(self, token: int) -> None:
        """Counts one more `token`; constant time on average."""
        place = self._place.setdefault(token, self._used)
        if place < self._used:
            self._counts[place] += 1
            return
        if self._used == len(self._ids):
            room = max(64, self._used)
            self._ids = np.concatenate([self._ids, np.zeros(room, np.int64)])
            self._counts = np.concatenate([self._counts, np.zeros(room)])
        self._ids[place], self._counts[place] = token, 1
        self._used += 1


class Penalties:
    """What one request does to its logits before anything is chosen from them."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int]) -> None:
        self._repetition = np.float32(sampling.repetition_penalty)
        self._frequency = np.float32(sampling.frequency_penalty)
        self._presence = np.float32(sampling.presence_penalty)
        self._bias_ids = np.array([token for token, _ in sampling.logit_bias], np.int64)
        self._bias = np.array([bias for _, bias in sampling.logit_bias], np.float32)
        self._history = History(prompt) if penalises(sampling) else None

    @property
    def none(self) -> bool:
        """Whether no logit is changed, unless a constraint forbids its id."""
        return self._history is None and not len(self._bias_ids)

    def accept(self, token: int) -> None:
        """Counts a generated token."""
        if self._history is not None:
            self._history.add(token)

    def apply(self, logits: np.ndarray, allowed: np.ndarray | None = None) -> np.ndarray:
        """The penalised logits, float32 [V]; `logits` itself, unchanged, when there is nothing to do.

        `logits` float32 [V] without NaN or +inf; `allowed` bool [V], False where a constraint forbids the id. Ids at
        -inf stay there. A value that would exceed float32 becomes its largest finite number.
        """
        if self.none and allowed is None:
            return logits
        values = logits.copy()
        with np.errstate(over="ignore"):
            if self._history is not None:
                ids = self._history.ids
                values[ids] = self._penalised(values[ids], self._history.counts)
            values[self._bias_ids] = np.minimum(values[self._bias_ids] + self._bias, LARGEST)
        if allowed is not None:
            values[~allowed] = -np.inf
        return values

    def _penalised(self, v: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """float32 [N] of the values of the ids that occurred."""
        v = np.where(v > 0, v / self._repetition, v * self._repetition)
        v = fma_f(-self._frequency, counts, v)
        return np.minimum(v - self._presence, LARGEST)
