"""The most likely ids in the one order that all choices use: logit descending, then id ascending (spec E-8.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dgpp.engine.sampler.settings import LARGEST


def scale(logits: np.ndarray, temperature: np.float32) -> np.ndarray:
    """logits / temperature in float32 [N]; finite quotients beyond float32 become its largest number, -inf stays."""
    with np.errstate(over="ignore"):
        scaled = logits / temperature
    return np.where(np.isneginf(logits), logits, np.clip(scaled, -LARGEST, LARGEST))


@dataclass(frozen=True)
class Prefix:
    """The first ids of the canonical order over those that are present (whose logit is not -inf)."""

    ids: np.ndarray  # int64 [N]
    logits: np.ndarray  # float32 [N], descending
    present: int  # ids of the whole vocabulary that are present

    @property
    def complete(self) -> bool:
        """Whether it holds all that are present."""
        return len(self.ids) == self.present

    @classmethod
    def of(cls, logits: np.ndarray, width: int) -> Prefix:
        """The first `width` ids, or all when fewer are present. `logits` float32 [V] without NaN; 0 equals -0."""
        present = int(np.count_nonzero(logits > -np.inf))
        if width < present:
            cut = np.partition(logits, len(logits) - width)[len(logits) - width]
            ids = np.flatnonzero(logits >= cut)
        else:
            ids = np.flatnonzero(logits > -np.inf)
        ids = ids[np.argsort(-logits[ids], kind="stable")][:width]
        return cls(ids, logits[ids], present)
