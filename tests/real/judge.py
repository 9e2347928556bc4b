"""How logits are judged against float64, position by position.

A shift common to all logits of a position changes no probability and no choice, so beside the error itself its
*spread* is kept: the standard deviation of the error over the vocabulary. The difference of two logits is then wrong
by about sqrt(2) spreads, and two engines differ in it by sqrt(2) times the root of their spreads' squares; three times
that is called their combined rounding. Where the margin of the best logit over the second exceeds it, a different
choice is an error, not rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

TEXT = Path(__file__).resolve().parents[1] / "data" / "alice.txt"
POSITIONS = 320
BOS = 1
SIGMAS = 3.0


def prompt(directory: Path) -> list[int]:
    """The ids judged: BOS and the beginning of the text, by the snapshot's tokenizer."""
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    text = TEXT.read_text(encoding="utf-8")
    return [BOS, *tokenizer.encode(text, add_special_tokens=False).ids[: POSITIONS - 1]]


@dataclass(frozen=True)
class Judgement:
    """One run's choices and errors, each an array [T]."""

    pick: np.ndarray  # the best id, ties to the lower one
    margin: np.ndarray  # its logit less the second's
    rms: np.ndarray  # error over the vocabulary: root mean square,
    largest: np.ndarray  # largest magnitude,
    spread: np.ndarray  # and standard deviation

    def rows(self) -> list[list[float]]:
        """[pick, margin, rms, largest, spread] of each position, rounded for storing."""
        columns = (self.margin, self.rms, self.largest, self.spread)
        return [[int(pick), *(float(f"{x:.6g}") for x in row)] for pick, *row in zip(self.pick, *columns, strict=True)]

    @staticmethod
    def of_rows(rows: list[list[float]]) -> Judgement:
        """The judgement that `rows` stored."""
        pick, *columns = np.array(rows).T
        return Judgement(pick.astype(int), *columns)

    def summary(self) -> str:
        """One line: rms over all positions, the largest error, and the root mean square of the spreads."""
        rms, spread = (np.sqrt(np.mean(x * x)) for x in (self.rms, self.spread))
        return f"rms {rms:.3g}, max {self.largest.max():.3g}, spread {spread:.3g}"


def judge(logits: np.ndarray, exact: np.ndarray) -> Judgement:
    """`logits` [T, V] against the float64 `exact` [T, V]."""
    error = logits.astype(np.float64) - exact
    second, best = np.sort(np.partition(logits, -2, axis=-1)[:, -2:], axis=-1).T.astype(np.float64)
    return Judgement(
        pick=logits.argmax(axis=-1),
        margin=best - second,
        rms=np.sqrt(np.mean(error * error, axis=-1)),
        largest=np.abs(error).max(axis=-1),
        spread=error.std(axis=-1),
    )


def combined_rounding(a: Judgement, b: Judgement) -> np.ndarray:
    """The margin below which the two runs may choose differently at each position, [T]."""
    return SIGMAS * np.sqrt(2 * (a.spread**2 + b.spread**2))
