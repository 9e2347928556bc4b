"""The judge: the Llama forward in float64 on a snapshot's own weights, far more exact than any engine under test."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dgpp.checkpoint.reader import Checkpoint
from tests.oracles import llama


def float64_logits(directory: Path, ids: Sequence[int]) -> np.ndarray:
    """The logits after each of `ids` (one prompt from position 0): float64 [T, V]."""
    checkpoint = Checkpoint.open(directory)
    return llama.logits(checkpoint.config, checkpoint.read, ids)
