"""Line breaks at the seams of an answer: what a model writes between its thinking, its text and its calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dgpp.text.detokenize import Piece


@dataclass
class Trimmer:
    """Drops the line breaks on both sides of a seam. Those at the end of what has come are held back, since a seam may
    follow; the text that comes out does not depend on how it was divided into pieces.

    `at_seam` says that a seam is where the text begins; `holds` that seams may follow. `lead` is one character that
    belongs to a call where one follows directly (the "<" of a DSML tag), and is held back for that.
    """

    at_seam: bool = False
    holds: bool = True
    lead: str = ""

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
            kept = text.rstrip("\n" + self.lead) if self.holds else text
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

    def rest(self, call: bool = False) -> list[Piece]:
        """What is held but for the line breaks at its end, and before a `call` for its lead."""
        held, self._held = self._held, []
        if call and self.lead:
            held = _shortened(held, self.lead, once=True)
        return _shortened(held, "\n")

    def finish(self) -> list[Piece]:
        """All that is still held: no seam follows."""
        held, self._held = self._held, []
        return held


def _shortened(pieces: Sequence[Piece], end: str, once: bool = False) -> list[Piece]:
    """`pieces` without `end`, or a run of it, at their end."""
    out = list(pieces)
    while out:
        last = out.pop()
        kept = last.text.removesuffix(end) if once else last.text.rstrip(end)
        if kept:
            out.append(Piece(kept, last.tokens))
        if kept or once:
            break
    return out
