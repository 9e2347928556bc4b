"""What a claim is: pairs of arrays that must be equal bit for bit, how many there must be, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dgpp.lab.claims.subject import Subject


@dataclass(frozen=True)
class Pair:
    """Two sides of a claim. `where` says for people which case it is."""

    where: str
    expected: np.ndarray
    found: np.ndarray


@dataclass(frozen=True)
class Plan:
    """What a claim will compare on one model: `count` pairs. `note` says what is left out and why.

    Nothing is computed before `pairs` is called. A claim that yields another number of pairs is broken, and the runner
    refuses it: a case that is silently skipped must not count as equal.
    """

    count: int
    pairs: Callable[[], Iterator[Pair]]
    note: str = ""

    @classmethod
    def nothing(cls, why: str) -> Plan:
        """A plan for a model on which the claim cannot be examined."""
        return cls(0, lambda: iter(()), why)


@dataclass(frozen=True)
class Claim:
    """A named promise of the engine; the docstring of its module says what it means."""

    name: str
    plan: Callable[[Subject], Plan]


@dataclass(frozen=True)
class ClaimResult:
    """What became of a claim on a model. It stands when something was compared and `difference` is None."""

    claim: str
    family: str
    backend: str  # JAX's backend and the kernels
    compared: int  # pairs, up to the first that differs
    difference: str | None
    note: str = ""

    @property
    def verdict(self) -> str:
        """One phrase: equal, the first difference, or that nothing was compared; and the note."""
        said = self.difference or ("equal" if self.compared else "nothing could be compared")
        return f"{said} ({self.note})" if self.note else said
