"""Line breaks at the seams of an answer: what a model writes between its thinking, its text and its calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dgpp.text.detokenize import Piece


@dataclass
class Trimmer:
    """Drops the line breaks on both sides of a seam. Those at the end of what has come are held back, since a seam may
    follow; the text that comes out does not depend on how it was divided into pieces.

    `at_seam` says that a seam is where the text begins; `holds` that seams may follow.
    """

    at_seam: bool = False
    holds: bool = True

    def __post_init__(self) -> None:
        self._held: list[Piece] = []

    def feed(self, pieces: Sequence[Piece]) -> list[Piece]:
        """What of `pieces` can be shown, and what was held before it."""
        out: list[Piece] = []
        for piece in pieces:
            text = piece.text
            if self.at_seam:
                text = text.lstrip("\n")
                if not text:
                    continue
                self.at_seam = False
            kept = text.rstrip("\n") if self.holds else text
            if kept:
                out += [*self._held, Piece(kept, piece.tokens)]
                self._held = []
            if len(kept) < len(text):
                self._held.append(Piece(text[len(kept) :], piece.tokens))
        return out

    def seam(self) -> None:
        """A seam is here: what is held is dropped, and so are the line breaks that follow."""
        self._held = []
        self.at_seam = True

    def finish(self) -> list[Piece]:
        """What is still held: no seam follows."""
        held, self._held = self._held, []
        return held
