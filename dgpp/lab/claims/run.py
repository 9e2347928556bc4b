"""Runs claims on a model, and says of each how much was compared and what differed first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np

from dgpp.engine.core import Core
from dgpp.engine.engine import LocalEngine
from dgpp.engine.request import Engine
from dgpp.lab.claims import chunk, lab, phase, restart, rows, sample, world
from dgpp.lab.claims.claim import Claim, ClaimResult, Pair
from dgpp.lab.claims.subject import FULL, Effort, Subject
from dgpp.lab.compare import describe, difference
from dgpp.lab.model import Model

CLAIMS: dict[str, Claim] = {
    module.CLAIM.name: module.CLAIM for module in (rows, phase, chunk, restart, sample, lab, world)
}

Progress = Callable[[str, int, int], None]
"""Called with a claim's name, the pairs compared so far and the pairs to compare in all."""


def run_claims(
    model: Model,
    names: Sequence[str] | None = None,
    progress: Progress | None = None,
    *,
    effort: Effort = FULL,
    serve: Callable[[Core], Engine] = LocalEngine,
) -> list[ClaimResult]:
    """The results of the named claims, or of all, in the order of `CLAIMS`. Raises ValueError for an unknown name.

    A claim ends at its first difference. `serve` makes the engine that the sample claim sends its requests to.
    """
    unknown = [name for name in names or () if name not in CLAIMS]
    if unknown:
        raise ValueError(f"unknown claim {unknown[0]!r}; known are {', '.join(CLAIMS)}")
    subject = Subject(model, effort, serve)
    return [run_claim(claim, subject, progress) for name, claim in CLAIMS.items() if not names or name in names]


def run_claim(claim: Claim, subject: Subject, progress: Progress | None = None) -> ClaimResult:
    """The result of one claim."""
    plan = claim.plan(subject)
    core = subject.core
    backend = f"{jax.default_backend()}/{core.kernels.name}"
    compared, found = 0, None
    pairs = plan.pairs()
    for pair in pairs:
        compared += 1
        found = _difference(pair)
        if progress is not None:
            progress(claim.name, compared, plan.count)
        if found is not None:
            pairs.close()  # type: ignore[attr-defined]  # frees what the claim holds
            break
    if found is None and compared != plan.count:
        raise AssertionError(f"claim {claim.name} compared {compared} pairs instead of {plan.count}")
    return ClaimResult(claim.name, core.family.name, backend, compared, found, plan.note)


def _difference(pair: Pair) -> str | None:
    expected, found = np.asarray(pair.expected), np.asarray(pair.found)
    same_kind = expected.shape == found.shape and expected.dtype == found.dtype
    if same_kind and expected.tobytes() == found.tobytes():
        return None
    return describe(difference(pair.where, found, expected))
