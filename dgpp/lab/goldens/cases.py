"""All golden cases, by name."""

from __future__ import annotations

from dgpp.lab.goldens.case import Case
from dgpp.lab.goldens.ops import OP_CASES
from dgpp.lab.goldens.step import STEP_CASES

_ALL: tuple[Case, ...] = (*OP_CASES, *STEP_CASES)
CASES = {case.name: case for case in _ALL}

REAL = frozenset(case.name for case in STEP_CASES if case.real)
"""Cases that need weights from outside the repository."""
