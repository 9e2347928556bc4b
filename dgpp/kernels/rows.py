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
    """R rows, the used ones first, laid out as segments: consecutive positions of one slot. A slot has at most one.

    A padding row has position and slot -1 and is a segment of its own; it writes no state, and its outputs are
    unspecified. Prefill and decode rows are committed by the step that computes them. Verify rows are not: what they
    put into a recurrent state is kept beside it, and the slot's next step first replays the accepted ones.
    """

    token: Any  # int32 [R]
    position: Any  # int32 [R], absolute, from 0: the place in the cache
    rope: Any  # int32 [R, 3]: temporal, vertical and horizontal position for rotary embeddings; equal for text
    slot: Any  # int32 [R]
    phase: Any  # int32 [R], `Phase`
    first: Any  # int32 [R]: the row with which the row's segment starts
    last: Any  # int32 [R]: the row with which it ends
    used: Any  # int32 [], rows before this one are real
    page_table: Any  # int32 [S, M]: physical page of logical page m of slot s
    replay: Any  # int32 [S]: rows since the slot's last commit that were accepted, just before its segment
    zero: Any  # int32 [], always 0 but not known to the compiler (see dgpp.kernels.rounding)
    ngrams: Any = None  # bf16 [R, E]: the rows of an n-gram table that stays on disk, for models that have one
