"""What a golden case is, and how its values are written down."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

Values = dict[str, str]
"""Names of values, with their digest or their text."""


@dataclass(frozen=True)
class Judgement:
    """How far a case's result is from float64: `error` must not exceed `bound`. Both are relative Euclidean norms."""

    error: float
    bound: float

    @property
    def stands(self) -> bool:
        """Whether the error keeps the bound; NaN does not."""
        return self.error <= self.bound

    def __str__(self) -> str:
        return f"{self.error:.3g} from float64, {'within' if self.stands else 'BEYOND'} the bound of {self.bound:.3g}"


@dataclass(frozen=True)
class Computed:
    """The values of a case as computed now, by class, and a judge for when there is no golden to compare with."""

    judge: Callable[[], Judgement]
    portable: Values = field(default_factory=dict)
    pinned: Values = field(default_factory=dict)


class Case(Protocol):
    """One manifest: `goldens/<folder>/<name>.json`."""

    @property
    def name(self) -> str:
        """The name of the manifest."""

    @property
    def folder(self) -> str:
        """Its folder: "step" or "kernels"."""

    @property
    def inputs(self) -> dict[str, Any]:
        """Everything that the values follow from, as JSON."""

    def compute(self, kernels: str | None) -> Computed:
        """The values with the kernels of that name, or the default ones."""


def digest(data: np.ndarray | bytes) -> str:
    """16 hexadecimal digits of the SHA-256 of an array's bytes in row-major order."""
    raw = data if isinstance(data, bytes) else np.ascontiguousarray(data).tobytes()
    return hashlib.sha256(raw).hexdigest()[:16]


def shown(values: np.ndarray) -> str:
    """A few numbers as text, with enough digits to tell any two float32 apart."""
    return " ".join(f"{float(value):.9g}" for value in values.reshape(-1))
