"""The ragged batch a forward takes: rows, each one token position of one request."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import jax


class Phase(IntEnum):
    """What a row is fed for. Explicit data, never inferred from a shape; no family may give it other bits."""

    PADDING = 0
    PREFILL = 1
    DECODE = 2
    VERIFY = 3


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Rows:
    """R rows, the used ones first, laid out as segments: consecutive positions of one slot.

    A padding row has position and slot -1, writes no state, and its outputs are unspecified.
    """

    token: Any  # int32 [R]
    position: Any  # int32 [R], absolute, from 0
    slot: Any  # int32 [R]
    phase: Any  # int32 [R], `Phase`
    used: Any  # int32 [], rows before this one are real
    page_table: Any  # int32 [S, M]: physical page of logical page m of slot s
    zero: Any  # int32 [], always 0 but not known to the compiler (see dgpp.kernels.rounding)
